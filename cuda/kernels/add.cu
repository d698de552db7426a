// y += x. Memory bound: N * (sizeof x + 2 * sizeof y) bytes.
//
//   grid   (pieces of a row, rows); a vector is one row
//   each   thread adds W elements at a time and walks rows in steps of gridDim.y
//   needs  offsets are 64-bit; odd or misaligned rows take one element a thread
//   source checked against src/ops/cpu
#include "kernels/add.h"
#include "kernels/common.cuh"

namespace annulus::cuda {
namespace {

constexpr int kThreads = 256;

template <class X, class Y, int W>
__global__ void __launch_bounds__(kThreads)
    add_kernel(const X* __restrict__ x, Y* __restrict__ y, std::int64_t N, std::int64_t C,
               std::int64_t x_stride, std::int64_t y_stride) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t n = blockIdx.y; n < N; n += gridDim.y) {
    const X* from = x + n * x_stride;
    Y* to = y + n * y_stride;
    for (std::int64_t i = first; i < C / W; i += step) {
      float v[W], sum[W];
      load(v, from + i * W);
      load(sum, to + i * W);
#pragma unroll
      for (int w = 0; w < W; ++w) sum[w] += v[w];
      store(to + i * W, sum);
    }
    const std::int64_t last = C / W * W + first;
    if (W > 1 && last < C) to[last] = from_float<Y>(to_float(to[last]) + to_float(from[last]));
  }
}

template <class X, class Y>
void add(const Tensor& x, const Tensor& y, std::int64_t N, std::int64_t C, bool wide, cudaStream_t stream) {
  const auto kernel = wide ? add_kernel<X, Y, 8> : add_kernel<X, Y, 1>;
  const dim3 grid(grid_for(ceil_div(C, kThreads * (wide ? 8 : 1))), grid_for(N, 65535));
  kernel<<<grid, kThreads, 0, stream>>>(device<X>(x), device<Y>(y), N, C, N == 1 ? C : x.stride(),
                                        N == 1 ? C : y.stride());
  launched("add_kernel");
}

void add(const Tensor& x, const Tensor& y, std::int64_t N, std::int64_t C, bool wide, cudaStream_t stream) {
  if (N * C == 0) return;
  if (is_bf16(x)) {
    is_bf16(y) ? add<nv_bf16, nv_bf16>(x, y, N, C, wide, stream)
               : add<nv_bf16, float>(x, y, N, C, wide, stream);
  } else {
    is_bf16(y) ? add<float, nv_bf16>(x, y, N, C, wide, stream) : add<float, float>(x, y, N, C, wide, stream);
  }
}

}  // namespace

void launch_add(const Add& a, cudaStream_t stream) {
  need(a.x.size() == a.y.size() && a.x.contiguous() && a.y.contiguous(), "add: layout");
  add(a.x, a.y, 1, a.x.size(), wide_vector(a.x, 8) && wide_vector(a.y, 8), stream);
}

void launch_accumulate(const Tensor& x, const Tensor& y, cudaStream_t stream) {
  need(x.shape == y.shape, "accumulate: shapes differ");
  add(x, y, x.shape[0], x.row_size(), wide_rows(x, 8) && wide_rows(y, 8), stream);
}

}  // namespace annulus::cuda
