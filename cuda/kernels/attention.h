// Attention over any visible range, without a library: the portable engine (compute capability 8.0 and
// later). Deterministic; needs no workspace. bf16 with D = 64 or 128 runs on the tensor cores, everything
// else (f32, any D up to 256) on plain arithmetic.
#pragma once
#include <cuda_runtime_api.h>
#include "ops/ops.h"

namespace annulus::cuda {

/// The whole call: all blocks, `begins`, `ends`, and rows that no block touches. Rows of q, k, v and o may be
/// strided. acc is read when not `begins` and written when not `ends`; it may be null where neither happens.
void launch_attention_fwd(const AttentionFwd&, cudaStream_t);

/// The whole call: all blocks. dq, dk, dv in f32 are added to; in T they are overwritten, rows that no query
/// or key of the block sees included. Rows of dq, dk and dv may be strided.
void launch_attention_bwd(const AttentionBwd&, cudaStream_t);

}  // namespace annulus::cuda
