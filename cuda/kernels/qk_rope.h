// Per-head norm and rotary embedding of queries and keys.
#pragma once
#include <cuda_runtime_api.h>
#include "kernels/scratch.h"
#include "ops/ops.h"

namespace annulus::cuda {

void launch_qk_rope_fwd(const QkRopeFwd&, cudaStream_t);
void launch_qk_rope_bwd(const QkRopeBwd&, Scratch, cudaStream_t);

}  // namespace annulus::cuda
