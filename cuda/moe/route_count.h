// Counts of pairs and rows by sub-range of tokens.
#pragma once
#include <cuda_runtime_api.h>
#include "ops/ops.h"

namespace annulus::cuda {

void launch_route_count(const RouteCount&, cudaStream_t);

}  // namespace annulus::cuda
