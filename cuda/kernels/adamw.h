// The optimizer's update of a slice of one parameter.
#pragma once
#include <cuda_runtime_api.h>
#include "ops/ops.h"

namespace annulus::cuda {

void launch_adamw(const AdamW&, cudaStream_t);

}  // namespace annulus::cuda
