// The gradient of share * silu(g) * u. Memory bound: 5*P*F*sizeof(T) bytes, one more P*F*sizeof(T) when h is
// wanted.
//
//   grid   a warp a row
//   each   lane takes W columns of g, u and dh at a time; the row's sum is the lanes' sum
//   needs  offsets are 64-bit; odd F takes one element a lane
//   source checked against src/ops/cpu/swiglu.cpp
#include "kernels/common.cuh"
#include "kernels/sigmoid.cuh"
#include "moe/expert_swiglu_bwd.h"

namespace annulus::cuda {
namespace {

constexpr int kWarps = 4;

template <class T, int W>
__global__ void __launch_bounds__(kWarps * 32)
    expert_swiglu_bwd_kernel(const T* gu,                       // (P, 2F)
                             const T* dh,                       // (P, F)
                             const float* __restrict__ shares,  // (P)
                             T* h,                              // (P, F), may be null, may be dh
                             float* __restrict__ dshare,        // (P)
                             T* dgu,                            // (P, 2F), may be gu
                             std::int64_t P, std::int64_t F) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (std::int64_t p = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; p < P;
       p += std::int64_t{gridDim.x} * kWarps) {
    const float share = shares[p];
    float along = 0.f;
    for (std::int64_t f = lane * W; f < F; f += 32 * W) {
      float g[W], u[W], d[W], again[W];
      load(g, gu + p * 2 * F + f);
      load(u, gu + p * 2 * F + F + f);
      load(d, dh + p * F + f);
#pragma unroll
      for (int w = 0; w < W; ++w) {
        const float s = sigmoid(g[w]), silu = g[w] * s, scaled = share * d[w];
        along += d[w] * (silu * u[w]);
        again[w] = share * silu * u[w];
        const float dg = scaled * u[w] * s * (1.f + g[w] * (1.f - s));
        u[w] = scaled * silu;
        g[w] = dg;
      }
      if (h != nullptr) store(h + p * F + f, again);
      store(dgu + p * 2 * F + f, g);
      store(dgu + p * 2 * F + F + f, u);
    }
    along = lane_sum(along);
    if (lane == 0) dshare[p] = along;
  }
}

template <class T>
void expert_swiglu_bwd(const ExpertSwigluBwd& a, cudaStream_t stream) {
  const std::int64_t P = a.dh.shape[0], F = a.dh.shape[1];
  const bool wide = F % kWide<T> == 0 && wide_rows(a.gu, kWide<T>) && wide_rows(a.dgu, kWide<T>) &&
                    wide_rows(a.dh, kWide<T>) && wide_rows(a.h, kWide<T>);
  const auto kernel = wide ? expert_swiglu_bwd_kernel<T, kWide<T>> : expert_swiglu_bwd_kernel<T, 1>;
  kernel<<<grid_for(ceil_div(P, kWarps)), kWarps * 32, 0, stream>>>(
      device<T>(a.gu), device<T>(a.dh), device<float>(a.share), device<T>(a.h), device<float>(a.dshare),
      device<T>(a.dgu), P, F);
  launched("expert_swiglu_bwd_kernel");
}

}  // namespace

void launch_expert_swiglu_bwd(const ExpertSwigluBwd& a, cudaStream_t stream) {
  if (a.dh.shape[0] == 0) return;
  is_bf16(a.dh) ? expert_swiglu_bwd<nv_bf16>(a, stream) : expert_swiglu_bwd<float>(a, stream);
}

}  // namespace annulus::cuda
