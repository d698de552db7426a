// What a product is added to, where the matrix library cannot do that on its way out.
#pragma once
#include <cuda_runtime_api.h>
#include "core/tensor.h"

namespace annulus::cuda {

/// c[m,n] = add[m,n] + bias[n]; an absent one counts as zero.
///   c (M, N) f32 or bf16;  add (M, N) of c's type, may be c;  bias (N) f32 or bf16;  rows may be strided
void launch_addend(const Tensor& add, const Tensor& bias, const Tensor& c, cudaStream_t);

}  // namespace annulus::cuda
