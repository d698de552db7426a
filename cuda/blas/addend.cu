// c[m,n] = add[m,n] + bias[n]. Memory bound: reads add and writes c once.
//
//   grid   up to kBlocks blocks of 256 threads over all elements of c (M, N), in strides of the grid
//   each   thread takes single elements: this is the path for odd sizes, not the fast one
//   needs  nothing; offsets are 64-bit
#include "blas/addend.h"

#include <cuda_bf16.h>
#include <algorithm>
#include "core/check.cuh"

namespace annulus::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kBlocks = 4096;

__device__ float load(float v) {
  return v;
}
__device__ float load(__nv_bfloat16 v) {
  return __bfloat162float(v);
}
__device__ void save(float v, float* to) {
  *to = v;
}
__device__ void save(float v, __nv_bfloat16* to) {
  *to = __float2bfloat16(v);
}

template <class B, class C>
__global__ void addend_kernel(const C* add,  // (M, N), rows `add_stride` apart; null: zero; may be c
                              const B* __restrict__ bias,  // (N); null: zero
                              C* c,                        // (M, N), rows `stride` apart
                              std::int64_t M, std::int64_t N, std::int64_t add_stride, std::int64_t stride) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < M * N; i += step) {
    const std::int64_t m = i / N, n = i % N;
    float v = 0.f;
    if (add != nullptr) v += load(add[m * add_stride + n]);
    if (bias != nullptr) v += load(bias[n]);
    save(v, c + m * stride + n);
  }
}

template <class B, class C>
void launch(const Tensor& add, const Tensor& bias, const Tensor& c, cudaStream_t stream) {
  const std::int64_t M = c.shape[0], N = c.row_size();
  const auto blocks = static_cast<unsigned>(std::min(kBlocks, (M * N + kThreads - 1) / kThreads));
  addend_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const C*>(add.data),
                                                 static_cast<const B*>(bias.data), static_cast<C*>(c.data), M,
                                                 N, add.stride(), c.stride());
  launched("addend_kernel");
}

}  // namespace

void launch_addend(const Tensor& add, const Tensor& bias, const Tensor& c, cudaStream_t stream) {
  if (c.size() == 0) return;
  const auto floats = [](const Tensor& t) { return t.dtype == DType::f32 || t.dtype == DType::bf16; };
  need(floats(c) && (!add || add.dtype == c.dtype) && (!bias || floats(bias)), "addend: f32 or bf16 only");
  const bool wide_bias = bias && bias.dtype == DType::f32, wide_c = c.dtype == DType::f32;
  if (wide_bias && wide_c)
    launch<float, float>(add, bias, c, stream);
  else if (wide_bias)
    launch<float, __nv_bfloat16>(add, bias, c, stream);
  else if (wide_c)
    launch<__nv_bfloat16, float>(add, bias, c, stream);
  else
    launch<__nv_bfloat16, __nv_bfloat16>(add, bias, c, stream);
}

}  // namespace annulus::cuda
