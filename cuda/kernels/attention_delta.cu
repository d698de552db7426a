// delta[h,n] = sum_d o[n,h,d] * d_o[n,h,d]. Memory bound: 2*Tq*H*D*sizeof(T) bytes.
//
//   grid   groups of lanes in a grid-stride loop over (query, head)
//   each   group of 4 to 32 lanes owns one head of one query; a lane adds pieces of W elements, the group
//          adds its lanes by shuffles
//   needs  offsets are 64-bit; odd D takes one element a lane
//   source Dao et al. 2022, alg. 4 (D_i); checked against src/ops/cpu
#include "kernels/attention_delta.h"
#include "kernels/common.cuh"

namespace annulus::cuda {
namespace {

constexpr int kThreads = 256;

template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    attention_delta_kernel(const T* __restrict__ o,    // (Tq, H, D), rows o_stride apart
                           const T* __restrict__ d_o,  // (Tq, H, D), rows d_o_stride apart
                           float* __restrict__ delta,  // (H, Tq), rows delta_stride apart
                           std::int64_t Tq, int H, int D, std::int64_t o_stride, std::int64_t d_o_stride,
                           std::int64_t delta_stride, int lanes) {
  const int groups = kThreads / lanes, lane = static_cast<int>(threadIdx.x) % lanes;
  for (std::int64_t first = std::int64_t{blockIdx.x} * groups; first < Tq * H;
       first += std::int64_t{gridDim.x} * groups) {
    const std::int64_t item = first + static_cast<int>(threadIdx.x) / lanes;
    const bool mine = item < Tq * H;  // all lanes stay for the shuffles
    const std::int64_t n = mine ? item / H : 0;
    const int h = mine ? static_cast<int>(item - n * H) : 0;
    float sum = 0.f;
    for (int d = lane * W; mine && d < D; d += lanes * W) {
      float a[W], b[W];
      load(a, o + n * o_stride + std::int64_t{h} * D + d);
      load(b, d_o + n * d_o_stride + std::int64_t{h} * D + d);
#pragma unroll
      for (int w = 0; w < W; ++w) sum += a[w] * b[w];
    }
    sum = lane_sum(sum, lanes);
    if (mine && lane == 0) delta[h * delta_stride + n] = sum;
  }
}

template <class T>
void attention_delta(const AttentionDelta& a, cudaStream_t stream) {
  const std::int64_t Tq = a.o.shape[0], H = a.o.shape[1], D = a.o.shape[2];
  const bool wide = D % kWide<T> == 0 && wide_rows(a.o, kWide<T>) && wide_rows(a.d_o, kWide<T>);
  const auto kernel = wide ? attention_delta_kernel<T, kWide<T>> : attention_delta_kernel<T, 1>;
  int lanes = 4;
  while (lanes < 32 && lanes * (wide ? kWide<T> : 1) < D) lanes *= 2;
  kernel<<<grid_for(ceil_div(Tq * H, kThreads / lanes)), kThreads, 0, stream>>>(
      device<T>(a.o), device<T>(a.d_o), device<float>(a.delta), Tq, static_cast<int>(H), static_cast<int>(D),
      a.o.stride(), a.d_o.stride(), a.delta.stride(), lanes);
  launched("attention_delta_kernel");
}

}  // namespace

void launch_attention_delta(const AttentionDelta& a, cudaStream_t stream) {
  const std::int64_t Tq = a.o.shape[0], H = a.o.shape[1], D = a.o.shape[2];
  a.d_o.expect({Tq, H, D}), a.delta.expect({H, Tq});
  if (Tq * H == 0) return;
  is_bf16(a.o) ? attention_delta<nv_bf16>(a, stream) : attention_delta<float>(a, stream);
}

}  // namespace annulus::cuda
