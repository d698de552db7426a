// Sum, or sum of squares, in double. Memory bound: N*sizeof(x) bytes.
//
//   grid   at most kBlocks blocks, a constant, so that the order does not depend on the device; one more
//          block adds their sums in order
//   each   thread adds W elements at a time, in double
//   needs  scratch of kBlocks doubles; offsets are 64-bit
//   source checked against src/ops/cpu
#include "kernels/common.cuh"
#include "kernels/sum.h"

namespace annulus::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 1024;
constexpr std::int64_t kPerBlock = 1 << 14;  // elements that make a further block worth while

template <class T, int W, bool Squares>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(const T* __restrict__ x, double* __restrict__ partial, std::int64_t N) {
  __shared__ double part[32];
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  double sum = 0.0;
  const auto take = [&sum](float v) { sum = Squares ? fma(double(v), double(v), sum) : sum + double(v); };
#pragma unroll 4
  for (std::int64_t i = first; i < N / W; i += step) {
    float v[W];
    load(v, x + i * W);
#pragma unroll
    for (int w = 0; w < W; ++w) take(v[w]);
  }
  if (W > 1 && N / W * W + first < N) take(to_float(x[N / W * W + first]));
  sum = block_sum(sum, part);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kBlocks)
    sum_partials_kernel(const double* __restrict__ partial, int blocks, double* __restrict__ out) {
  __shared__ double part[32];
  const int i = static_cast<int>(threadIdx.x);
  const double sum = block_sum(i < blocks ? partial[i] : 0.0, part);
  if (i == 0) *out += sum;
}

template <class T, int W>
void sum(const Sum& a, double* partial, unsigned blocks, cudaStream_t stream) {
  const auto kernel = a.squares ? sum_kernel<T, W, true> : sum_kernel<T, W, false>;
  kernel<<<blocks, kThreads, 0, stream>>>(device<T>(a.x), partial, a.x.size());
  launched("sum_kernel");
}

template <class T>
void sum(const Sum& a, double* partial, unsigned blocks, cudaStream_t stream) {
  wide_vector(a.x, kWide<T>) ? sum<T, kWide<T>>(a, partial, blocks, stream)
                             : sum<T, 1>(a, partial, blocks, stream);
}

}  // namespace

void launch_sum(const Sum& a, Scratch scratch, cudaStream_t stream) {
  a.out.expect({1});
  need(a.x.contiguous(), "sum: x is strided");
  need(scratch.bytes >= std::int64_t{kBlocks * sizeof(double)}, "sum: scratch memory is too small");
  if (a.x.size() == 0) return;
  const unsigned blocks = grid_for(ceil_div(a.x.size(), kPerBlock), kBlocks);
  double* partial = static_cast<double*>(scratch.data);
  is_bf16(a.x) ? sum<nv_bf16>(a, partial, blocks, stream) : sum<float>(a, partial, blocks, stream);
  sum_partials_kernel<<<1, kBlocks, 0, stream>>>(partial, static_cast<int>(blocks), device<double>(a.out));
  launched("sum_partials_kernel");
}

}  // namespace annulus::cuda
