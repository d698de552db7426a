// Sums of columns: gradients of biases.
#pragma once
#include <cuda_runtime_api.h>
#include "kernels/scratch.h"
#include "ops/ops.h"

namespace annulus::cuda {

void launch_column_sum(const ColumnSum&, Scratch, cudaStream_t);

}  // namespace annulus::cuda
