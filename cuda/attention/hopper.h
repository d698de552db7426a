// The Hopper attention engine: one block of ops.h, forward and backward, bf16, D = 64 or 128.
#pragma once
#include <cuda_runtime.h>
#include "ops/ops.h"

namespace annulus::cuda {

/// Folds one block into the running softmax (see AttentionFwd). `fresh`: the rows hold nothing yet; `last`:
/// write o. Needs sm_90, bf16, D = 64 or 128, rows 16-byte aligned.
void launch_hopper_fwd(const AttentionFwd&, const AttentionBlock&, bool fresh, bool last, cudaStream_t);

/// Adds one block's gradients (see AttentionBwd): to `dq` (Tq, H, D) f32, and to dk and dv in f32, or writes
/// these when they are bf16. `turns`: hopper_bwd_turn_bytes() of scratch. Same bits every time.
void launch_hopper_bwd(const AttentionBwd&, const AttentionBlock&, const Tensor& dq, int* turns,
                       cudaStream_t);
std::int64_t hopper_bwd_turn_bytes(std::int64_t queries, std::int64_t H, std::int64_t D);

}  // namespace annulus::cuda
