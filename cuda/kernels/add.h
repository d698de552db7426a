// y += x, for vectors and for strided rows.
#pragma once
#include <cuda_runtime_api.h>
#include "ops/ops.h"

namespace annulus::cuda {

void launch_add(const Add&, cudaStream_t);

/// y += x row by row.
///   x (N, ...) f32 or bf16, rows may be strided;  y same shape, f32 or bf16, rows may be strided; not x
void launch_accumulate(const Tensor& x, const Tensor& y, cudaStream_t);

}  // namespace annulus::cuda
