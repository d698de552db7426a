// Rows by index.
#pragma once
#include <cuda_runtime_api.h>
#include "ops/ops.h"

namespace annulus::cuda {

void launch_gather_rows(const GatherRows&, cudaStream_t);

}  // namespace annulus::cuda
