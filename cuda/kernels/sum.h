// Sums, and sums of squares, in double.
#pragma once
#include <cuda_runtime_api.h>
#include "kernels/scratch.h"
#include "ops/ops.h"

namespace annulus::cuda {

void launch_sum(const Sum&, Scratch, cudaStream_t);

}  // namespace annulus::cuda
