// Conversion between f32 and bf16. Memory bound: 6 bytes an element.
//
//   grid   one thread per 8 elements; the last elements of a vector whose length 8 does not divide go one by
//   one each   thread converts 8 elements needs  offsets are 64-bit; a misaligned vector takes one element a
//   thread source rounding is to nearest even, as in src/core/bf16.h
#include "kernels/cast.h"
#include "kernels/common.cuh"

namespace annulus::cuda {
namespace {

constexpr int kThreads = 256;

template <class From, class To, int W>
__global__ void __launch_bounds__(kThreads)
    cast_kernel(const From* __restrict__ from, To* __restrict__ to, std::int64_t N) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < N / W; i += step) {
    float v[W];
    load(v, from + i * W);
    store(to + i * W, v);
  }
  const std::int64_t last = N / W * W + blockIdx.x * kThreads + threadIdx.x;
  if (W > 1 && last < N) to[last] = from_float<To>(to_float(from[last]));
}

template <class From, class To>
void cast(const Cast& a, cudaStream_t stream) {
  const std::int64_t N = a.from.size();
  const bool wide = wide_vector(a.from, 8) && wide_vector(a.to, 8);
  const auto kernel = wide ? cast_kernel<From, To, 8> : cast_kernel<From, To, 1>;
  kernel<<<grid_for(ceil_div(N, kThreads * (wide ? 8 : 1))), kThreads, 0, stream>>>(device<From>(a.from),
                                                                                    device<To>(a.to), N);
  launched("cast_kernel");
}

/// One block a row; rows of `to` may be strided.
__global__ void __launch_bounds__(kThreads)
    narrow_rows_kernel(const float* __restrict__ from, nv_bf16* __restrict__ to, std::int64_t width,
                       std::int64_t to_stride) {
  const std::int64_t row = blockIdx.x;
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads)
    to[row * to_stride + i] = from_float<nv_bf16>(from[row * width + i]);
}

}  // namespace

void launch_narrow_rows(const Tensor& from, const Tensor& to, cudaStream_t stream) {
  need(from.shape == to.shape && from.contiguous(), "narrow_rows: layout");
  if (from.size() == 0) return;
  narrow_rows_kernel<<<static_cast<unsigned>(from.shape[0]), kThreads, 0, stream>>>(
      device<float>(from), device<nv_bf16>(to), from.row_size(), to.stride());
  launched("narrow_rows_kernel");
}

void launch_cast(const Cast& a, cudaStream_t stream) {
  need(a.from.size() == a.to.size() && a.from.contiguous() && a.to.contiguous(), "cast: layout");
  if (a.from.size() == 0) return;
  if (a.from.dtype == a.to.dtype) {
    cu(cudaMemcpyAsync(a.to.data, a.from.data, static_cast<std::size_t>(a.from.bytes()),
                       cudaMemcpyDeviceToDevice, stream),
       "cudaMemcpyAsync cast");
  } else if (is_bf16(a.from)) {
    need(!is_bf16(a.to), "cast: type");
    cast<nv_bf16, float>(a, stream);
  } else {
    need(is_bf16(a.to), "cast: type");
    cast<float, nv_bf16>(a, stream);
  }
}

}  // namespace annulus::cuda
