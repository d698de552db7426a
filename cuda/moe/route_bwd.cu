// The gradient of a token's logits: from its weights to its p, then through the softmax. Memory bound: 4*N*E
// bytes in, N*E*sizeof(T) out.
//
//   grid   a warp a token
//   each   lane takes every 32nd expert; dL/dp of all of them lies in shared memory
//   needs  4 bytes of shared memory an expert and warp
//   source checked against src/ops/cpu/route.cpp
#include <cmath>
#include "kernels/common.cuh"
#include "moe/route_bwd.h"

namespace annulus::cuda {
namespace {

constexpr int kMaxWarps = 8;
constexpr std::int64_t kShared = 48 << 10;  // bytes a block

template <class T>
__global__ void __launch_bounds__(kMaxWarps * 32)
    route_bwd_kernel(const float* __restrict__ logits,      // (N, E)
                     const std::int32_t* __restrict__ ids,  // (N, K)
                     const float* __restrict__ dweights,    // (N, K)
                     const double* __restrict__ aux,        // (E), may be null
                     T* __restrict__ dlogits,               // (N, E)
                     std::int64_t N, int E, int K, bool normalize) {
  extern __shared__ __align__(16) unsigned char shared[];
  const int warps = static_cast<int>(blockDim.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  float* const dp = reinterpret_cast<float*>(shared) + (threadIdx.x / 32) * E;
  for (std::int64_t n = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32; n < N;
       n += std::int64_t{gridDim.x} * warps) {
    const float *z = logits + n * E, *dw = dweights + n * K;
    const std::int32_t* id = ids + n * K;
    T* const out = dlogits + n * E;
    if (id[0] < 0) {
      for (int e = lane; e < E; e += 32) out[e] = from_float<T>(0.f);
      continue;
    }
    __syncwarp();  // the token before may still be read
    float top = -INFINITY, sum = 0.f;
    for (int e = lane; e < E; e += 32) {
      top = fmaxf(top, z[e]);
      dp[e] = aux != nullptr ? static_cast<float>(aux[e]) : 0.f;
    }
    for (int o = 16; o > 0; o /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, o));
    for (int e = lane; e < E; e += 32) sum += expf(z[e] - top);
    const float scale = 1.f / lane_sum(sum);
    const auto p = [&](int e) { return expf(z[e] - top) * scale; };

    float chosen = 1.f, along = 0.f;  // sum of the chosen p; of dw times the weight
    if (normalize) {
      chosen = 0.f;
      for (int k = lane; k < K; k += 32) chosen += p(id[k]);
      chosen = lane_sum(chosen);
      for (int k = lane; k < K; k += 32) along += dw[k] * (p(id[k]) / chosen);
      along = lane_sum(along);
    }
    __syncwarp();
    for (int k = lane; k < K; k += 32) dp[id[k]] += (dw[k] - along) / chosen;
    __syncwarp();
    float mean = 0.f;
    for (int e = lane; e < E; e += 32) mean += p(e) * dp[e];
    mean = lane_sum(mean);
    for (int e = lane; e < E; e += 32) out[e] = from_float<T>(p(e) * (dp[e] - mean));
  }
}

template <class T>
void route_bwd(const RouteBwd& a, cudaStream_t stream) {
  const std::int64_t N = a.logits.shape[0], E = a.logits.shape[1], K = a.ids.shape[1];
  const std::int64_t bytes = E * std::int64_t{sizeof(float)};  // a warp
  need(bytes <= kShared, "route: more experts than a multiprocessor has memory for");
  const std::int64_t warps = std::min<std::int64_t>(kMaxWarps, kShared / bytes);
  route_bwd_kernel<T><<<grid_for(ceil_div(N, warps)), static_cast<unsigned>(warps * 32),
                        static_cast<std::size_t>(warps * bytes), stream>>>(
      device<float>(a.logits), device<std::int32_t>(a.ids), device<float>(a.dweights), device<double>(a.aux),
      device<T>(a.dlogits), N, static_cast<int>(E), static_cast<int>(K), a.normalize);
  launched("route_bwd_kernel");
}

}  // namespace

void launch_route_bwd(const RouteBwd& a, cudaStream_t stream) {
  if (a.logits.size() == 0) return;
  is_bf16(a.dlogits) ? route_bwd<nv_bf16>(a, stream) : route_bwd<float>(a, stream);
}

}  // namespace annulus::cuda
