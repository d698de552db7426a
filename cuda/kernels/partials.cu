// Adds up partial rows. 4*P*C bytes, most of it from cache.
//
//   grid   one block of 32 x 32 threads for 32 columns
//   each   thread adds every 32nd partial row of its column; the 32 sums of a column are added in order
#include "kernels/common.cuh"
#include "kernels/partials.h"

namespace annulus::cuda {
namespace {

__global__ void __launch_bounds__(1024)
    add_partials_kernel(const float* __restrict__ partial,  // (P, stride)
                        std::int64_t P, std::int64_t stride, std::int64_t C, float* __restrict__ out) {
  __shared__ float part[32][33];
  for (std::int64_t c0 = std::int64_t{blockIdx.x} * 32; c0 < C; c0 += std::int64_t{gridDim.x} * 32) {
    const std::int64_t c = c0 + threadIdx.x;
    float sum = 0.f;
    if (c < C) {
#pragma unroll 4
      for (std::int64_t p = threadIdx.y; p < P; p += 32) sum += partial[p * stride + c];
    }
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && c < C) {
      float all = 0.f;
#pragma unroll
      for (int i = 0; i < 32; ++i) all += part[i][threadIdx.x];
      out[c] += all;
    }
    __syncthreads();
  }
}

}  // namespace

std::int64_t partial_rows(Scratch scratch, std::int64_t columns, std::int64_t wanted) {
  const std::int64_t fit = scratch.bytes / (columns * std::int64_t{sizeof(float)});
  need(fit > 0, "scratch memory is too small for one row of partial sums");
  return std::clamp<std::int64_t>(wanted, 1, std::min(fit, kPartials));
}

void launch_add_partials(const float* partial, std::int64_t rows, std::int64_t stride, std::int64_t columns,
                         float* out, cudaStream_t stream) {
  add_partials_kernel<<<grid_for(ceil_div(columns, 32)), dim3(32, 32), 0, stream>>>(partial, rows, stride,
                                                                                    columns, out);
  launched("add_partials_kernel");
}

}  // namespace annulus::cuda
