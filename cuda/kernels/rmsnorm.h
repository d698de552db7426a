// RMSNorm over the last dimension.
#pragma once
#include <cuda_runtime_api.h>
#include "kernels/scratch.h"
#include "ops/ops.h"

namespace annulus::cuda {

void launch_rmsnorm_fwd(const RmsNormFwd&, cudaStream_t);
void launch_rmsnorm_bwd(const RmsNormBwd&, Scratch, cudaStream_t);

}  // namespace annulus::cuda
