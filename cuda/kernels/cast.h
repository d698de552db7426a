// Conversion between f32 and bf16.
#pragma once
#include <cuda_runtime_api.h>
#include "ops/ops.h"

namespace annulus::cuda {

void launch_cast(const Cast&, cudaStream_t);

}  // namespace annulus::cuda
