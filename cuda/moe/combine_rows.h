// Weighted sums of rows by index.
#pragma once
#include <cuda_runtime_api.h>
#include "ops/ops.h"

namespace annulus::cuda {

void launch_combine_rows(const CombineRows&, cudaStream_t);

}  // namespace annulus::cuda
