// What a tile of tokens sends to each rank.
#pragma once
#include <cuda_runtime_api.h>
#include "kernels/scratch.h"
#include "ops/ops.h"

namespace annulus::cuda {

void launch_dispatch_index(const DispatchIndex&, Scratch, cudaStream_t);

}  // namespace annulus::cuda
