// The gradient of a token's logits.
#pragma once
#include <cuda_runtime_api.h>
#include "ops/ops.h"

namespace annulus::cuda {

void launch_route_bwd(const RouteBwd&, cudaStream_t);

}  // namespace annulus::cuda
