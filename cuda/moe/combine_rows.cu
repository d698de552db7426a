// Weighted sums of rows by index. Memory bound: at most N*(J + 1)*C*sizeof(T) bytes, and the addend.
//
//   grid   (token, slice of columns)
//   each   thread owns W columns of a token and adds its rows up in order, kAhead of them in flight
//   needs  offsets are 64-bit; odd C takes one element a thread
//   source checked against src/ops/cpu/dispatch.cpp
#include "kernels/common.cuh"
#include "moe/combine_rows.h"

namespace annulus::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kAhead = 4;

template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    combine_rows_kernel(const T* __restrict__ x,                 // (I, C)
                        const std::int32_t* __restrict__ index,  // (N, J)
                        const float* __restrict__ weights,       // (N, J), may be null
                        const T* add,                            // (N, C), may be null, may be y
                        T* y,                                    // (N, C)
                        std::int64_t N, int J, std::int64_t C) {
  for (std::int64_t n = blockIdx.x; n < N; n += gridDim.x)
    for (std::int64_t c = (std::int64_t{blockIdx.y} * kThreads + threadIdx.x) * W; c < C;
         c += std::int64_t{gridDim.y} * kThreads * W) {
      float sum[W] = {};
      if (add != nullptr) load(sum, add + n * C + c);
      for (int j = 0; j < J; j += kAhead) {
        float v[kAhead][W], w[kAhead];
        bool there[kAhead];
#pragma unroll
        for (int u = 0; u < kAhead; ++u) {
          const std::int64_t row = j + u < J ? index[n * J + j + u] : -1;
          there[u] = row >= 0;
          w[u] = there[u] && weights != nullptr ? weights[n * J + j + u] : 1.f;
          if (there[u]) load(v[u], x + row * C + c);
        }
#pragma unroll
        for (int u = 0; u < kAhead; ++u) {
          if (!there[u]) continue;
#pragma unroll
          for (int i = 0; i < W; ++i) sum[i] = fmaf(w[u], v[u][i], sum[i]);
        }
      }
      store(y + n * C + c, sum);
    }
}

template <class T>
void combine_rows(const CombineRows& a, cudaStream_t stream) {
  const std::int64_t N = a.index.shape[0], J = a.index.shape[1], C = a.x.shape[1];
  const bool wide = wide_rows(a.x, kWide<T>) && wide_rows(a.add, kWide<T>) && wide_rows(a.y, kWide<T>);
  const auto kernel = wide ? combine_rows_kernel<T, kWide<T>> : combine_rows_kernel<T, 1>;
  const dim3 grid(grid_for(N), grid_for(ceil_div(C, kThreads * (wide ? kWide<T> : 1)), 65535));
  kernel<<<grid, kThreads, 0, stream>>>(device<T>(a.x), device<std::int32_t>(a.index),
                                        device<float>(a.weights), device<T>(a.add), device<T>(a.y), N,
                                        static_cast<int>(J), C);
  launched("combine_rows_kernel");
}

}  // namespace

void launch_combine_rows(const CombineRows& a, cudaStream_t stream) {
  if (a.y.size() == 0) return;
  is_bf16(a.x) ? combine_rows<nv_bf16>(a, stream) : combine_rows<float>(a, stream);
}

}  // namespace annulus::cuda
