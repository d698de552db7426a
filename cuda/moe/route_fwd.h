// The choice of experts.
#pragma once
#include <cuda_runtime_api.h>
#include "kernels/scratch.h"
#include "ops/ops.h"

namespace annulus::cuda {

void launch_route_fwd(const RouteFwd&, Scratch, cudaStream_t);

}  // namespace annulus::cuda
