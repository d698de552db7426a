// Column sums. Memory bound: N*C*sizeof(T) bytes.
//
//   grid   (slice of 32 * W columns, chunk of rows); a second kernel adds the chunks up
//   each   thread owns W columns and walks every 8th row of its chunk; the 8 sums of a column are added in
//          order
//   needs  scratch for one f32 row of C per chunk; offsets are 64-bit
//   source checked against src/ops/cpu
#include "kernels/column_sum.h"
#include "kernels/common.cuh"
#include "kernels/partials.h"

namespace annulus::cuda {
namespace {

constexpr int kLanes = 32, kRows = 8;
constexpr std::int64_t kRowsAtLeast = 64;  // rows a chunk, so that partials stay a small part of the traffic

template <class T, int W>
__global__ void __launch_bounds__(kLanes* kRows)
    column_sum_kernel(const T* __restrict__ x,      // (N, C), rows `stride` apart
                      float* __restrict__ partial,  // (gridDim.y, C)
                      std::int64_t N, std::int64_t C, std::int64_t stride) {
  __shared__ float part[kRows][kLanes * W + 1];
  for (std::int64_t c0 = std::int64_t{blockIdx.x} * kLanes * W; c0 < C;
       c0 += std::int64_t{gridDim.x} * kLanes * W) {
    const std::int64_t c = c0 + threadIdx.x * W;
    float sum[W] = {};
    if (c < C) {
#pragma unroll 4
      for (std::int64_t n = std::int64_t{blockIdx.y} * kRows + threadIdx.y; n < N;
           n += std::int64_t{gridDim.y} * kRows) {
        float v[W];
        load(v, x + n * stride + c);
#pragma unroll
        for (int w = 0; w < W; ++w) sum[w] += v[w];
      }
    }
#pragma unroll
    for (int w = 0; w < W; ++w) part[threadIdx.y][threadIdx.x * W + w] = sum[w];
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.y * kLanes + threadIdx.x); i < kLanes * W && c0 + i < C;
         i += kLanes * kRows) {
      float all = 0.f;
#pragma unroll
      for (int r = 0; r < kRows; ++r) all += part[r][i];
      partial[blockIdx.y * C + c0 + i] = all;
    }
    __syncthreads();
  }
}

template <class T>
void column_sum(const ColumnSum& a, float* partial, std::int64_t chunks, cudaStream_t stream) {
  const std::int64_t N = a.x.shape[0], C = a.x.shape[1];
  const bool wide = wide_rows(a.x, kWide<T>);
  const auto kernel = wide ? column_sum_kernel<T, kWide<T>> : column_sum_kernel<T, 1>;
  const std::int64_t slices = ceil_div(C, kLanes * (wide ? kWide<T> : 1));
  kernel<<<dim3(grid_for(slices), unsigned(chunks)), dim3(kLanes, kRows), 0, stream>>>(
      device<T>(a.x), partial, N, C, a.x.stride());
  launched("column_sum_kernel");
}

}  // namespace

void launch_column_sum(const ColumnSum& a, Scratch scratch, cudaStream_t stream) {
  const std::int64_t N = a.x.shape[0], C = a.x.shape[1];
  a.out.expect({C});
  if (N * C == 0) return;
  const std::int64_t chunks = partial_rows(scratch, C, ceil_div(N, kRowsAtLeast));
  float* partial = static_cast<float*>(scratch.data);
  is_bf16(a.x) ? column_sum<nv_bf16>(a, partial, chunks, stream)
               : column_sum<float>(a, partial, chunks, stream);
  launch_add_partials(partial, chunks, C, C, device<float>(a.out), stream);
}

}  // namespace annulus::cuda
