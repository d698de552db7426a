// Conversion between f32 and bf16.
#pragma once
#include <cuda_runtime_api.h>
#include "ops/ops.h"

namespace annulus::cuda {

void launch_cast(const Cast&, cudaStream_t);
/// to = from in bf16; from f32, contiguous; the rows of `to` may be strided.
void launch_narrow_rows(const Tensor& from, const Tensor& to, cudaStream_t);

}  // namespace annulus::cuda
