// Softmax over all experts, the K largest, and the sums that the auxiliary loss needs. Memory bound: 4*N*E
// bytes in, 8*N*K out.
//
//   grid   at most kPartials blocks, a constant, so that the order of the sums does not depend on the device
//   each   warp takes one token after the other: its logits lie in shared memory as numbers that sort like
//          them, each lane knows the largest of its own, and K times the largest of all is taken out. A warp
//          sums p in double; a second kernel adds the warps' sums up in order
//   needs  12 to 20 bytes of shared memory an expert and warp; scratch for 16 bytes an expert and block
//   source checked against src/ops/cpu/route.cpp
#include <cmath>
#include "kernels/common.cuh"
#include "kernels/partials.h"
#include "moe/route_fwd.h"

namespace annulus::cuda {
namespace {

constexpr int kMaxWarps = 8;
constexpr std::int64_t kShared = 96 << 10;  // bytes a block; every supported device has them

/// Unsigned numbers in the order of floats; -0 is 0, NaN is -infinity. None is 0.
__device__ __forceinline__ std::uint32_t sortable(float z) {
  const std::uint32_t bits = __float_as_uint(z == z ? z + 0.f : -INFINITY);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float unsorted(std::uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

__device__ __forceinline__ float lane_max(float v) {
  for (int o = 16; o > 0; o /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
  return v;
}
__device__ __forceinline__ std::uint64_t lane_max(std::uint64_t v) {
  for (int o = 16; o > 0; o /= 2) v = max(v, static_cast<std::uint64_t>(__shfl_xor_sync(0xffffffffu, v, o)));
  return v;
}

/// The largest key of this lane's experts; among equals the first expert. Experts that were taken have key 0.
__device__ __forceinline__ std::uint64_t best_of_lane(const std::uint32_t* keys, int E, int lane) {
  std::uint64_t best = 0;
  for (int e = lane; e < E; e += 32)
    best = max(best, std::uint64_t{keys[e]} << 32 | (0xffffffffu - static_cast<std::uint32_t>(e)));
  return best;
}

struct RouteArgs {
  const float* logits;           // (N, E)
  const std::int32_t* valid;     // (N)
  std::int32_t* ids;             // (N, K)
  float* weights;                // (N, K)
  double *picked, *probability;  // (gridDim.x, E) partial sums, or null
  std::int64_t N;
  int E, K;
  bool normalize, reuse;
};

__global__ void __launch_bounds__(kMaxWarps * 32) route_fwd_kernel(RouteArgs a) {
  extern __shared__ __align__(16) unsigned char shared[];
  const int warps = static_cast<int>(blockDim.x / 32), warp = static_cast<int>(threadIdx.x / 32),
            lane = static_cast<int>(threadIdx.x % 32), E = a.E, K = a.K;
  const bool sums = a.probability != nullptr || a.picked != nullptr;
  double* const probability = reinterpret_cast<double*>(shared);  // (warps, E), with `sums`
  float* const floats = reinterpret_cast<float*>(probability + (sums ? warps * E : 0));
  std::uint32_t* const picked = reinterpret_cast<std::uint32_t*>(floats);  // (warps, E), with `sums`
  std::uint32_t* const keys = picked + (sums ? warps * E : 0) + warp * E;  // (E), this warp's
  float* const chosen = floats + (sums ? 2 : 1) * warps * E + warp * K;    // (K), this warp's
  double* const my_probability = probability + warp * E;
  std::uint32_t* const my_picked = picked + warp * E;
  for (int e = lane; sums && e < E; e += 32) my_probability[e] = 0.0, my_picked[e] = 0;

  for (std::int64_t n = std::int64_t{blockIdx.x} * warps + warp; n < a.N;
       n += std::int64_t{gridDim.x} * warps) {
    std::int32_t* const ids = a.ids + n * K;
    float* const weights = a.weights + n * K;
    if (a.valid[n] == 0) {
      for (int k = lane; k < K; k += 32) {
        if (!a.reuse) ids[k] = -1;
        weights[k] = 0.f;
      }
      continue;
    }
    const float* const logits = a.logits + n * E;
    __syncwarp();  // the token before may still be read
    float top = -INFINITY, sum = 0.f;
    for (int e = lane; e < E; e += 32) {
      const float z = logits[e];
      keys[e] = sortable(z);
      top = fmaxf(top, z);
    }
    top = lane_max(top);
    for (int e = lane; e < E; e += 32) sum += expf(logits[e] - top);  // NaN where a logit is
    const float scale = 1.f / lane_sum(sum);                          // of e^(z - top)
    for (int e = lane; sums && e < E; e += 32) my_probability[e] += double(expf(logits[e] - top) * scale);

    std::uint64_t best = a.reuse ? 0 : best_of_lane(keys, E, lane);
    float all = 0.f;
    for (int k = 0; k < K; ++k) {
      int e;
      float z;
      if (a.reuse) {
        e = ids[k];
        z = logits[e];
      } else {
        const std::uint64_t largest = lane_max(best);
        e = static_cast<int>(0xffffffffu - static_cast<std::uint32_t>(largest));
        z = unsorted(static_cast<std::uint32_t>(largest >> 32));
        if (e % 32 == lane) {  // nobody else reads this lane's keys
          keys[e] = 0;
          best = best_of_lane(keys, E, lane);
        }
        if (lane == 0) ids[k] = e;
      }
      const float p = expf(z - top) * scale;
      all += p;
      if (lane == 0) {
        chosen[k] = p;
        if (sums) ++my_picked[e];
      }
    }
    __syncwarp();
    for (int k = lane; k < K; k += 32) weights[k] = a.normalize ? chosen[k] / all : chosen[k];
  }
  if (!sums) return;
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < E; e += static_cast<int>(blockDim.x)) {
    double p = 0.0, count = 0.0;
    for (int w = 0; w < warps; ++w) p += probability[w * E + e], count += picked[w * E + e];
    const std::int64_t at = std::int64_t{blockIdx.x} * E + e;
    if (a.probability != nullptr) a.probability[at] = p;
    if (a.picked != nullptr) a.picked[at] = count;
  }
}

__global__ void __launch_bounds__(1024) add_routes_kernel(const double* __restrict__ partial,  // (P, E)
                                                          int P, int E, double* __restrict__ out) {
  __shared__ double part[32][33];
  const int e = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  double sum = 0.0;
  for (int p = static_cast<int>(threadIdx.y); p < P && e < E; p += 32)
    sum += partial[std::int64_t{p} * E + e];
  part[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || e >= E) return;
  double all = 0.0;
  for (int i = 0; i < 32; ++i) all += part[i][threadIdx.x];
  out[e] += all;
}

}  // namespace

void launch_route_fwd(const RouteFwd& a, Scratch scratch, cudaStream_t stream) {
  const std::int64_t N = a.logits.shape[0], E = a.logits.shape[1], K = a.ids.shape[1];
  if (N == 0) return;
  const bool sums = a.picked || a.probability;
  const std::int64_t bytes = E * (sums ? 16 : 4) + K * 4;  // a warp
  need(bytes <= kShared, "route: more experts than a multiprocessor has memory for");
  const std::int64_t warps = std::min<std::int64_t>(kMaxWarps, kShared / bytes);
  const unsigned blocks = grid_for(ceil_div(N, warps), kPartials);
  const std::int64_t partial = std::int64_t{blocks} * E;
  need(!sums || 2 * partial * std::int64_t{sizeof(double)} <= scratch.bytes,
       "route: scratch memory is too small");
  double* const sums_at = static_cast<double*>(scratch.data);
  RouteArgs args{.logits = device<float>(a.logits),
                 .valid = device<std::int32_t>(a.valid),
                 .ids = device<std::int32_t>(a.ids),
                 .weights = device<float>(a.weights),
                 .picked = a.picked ? sums_at : nullptr,
                 .probability = a.probability ? sums_at + partial : nullptr,
                 .N = N,
                 .E = static_cast<int>(E),
                 .K = static_cast<int>(K),
                 .normalize = a.normalize,
                 .reuse = a.reuse};
  cu(cudaFuncSetAttribute(route_fwd_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int{kShared}),
     "cudaFuncSetAttribute");
  route_fwd_kernel<<<blocks, static_cast<unsigned>(warps * 32), static_cast<std::size_t>(warps * bytes),
                     stream>>>(args);
  launched("route_fwd_kernel");
  for (const auto& [from, to] : {std::pair{args.picked, a.picked}, {args.probability, a.probability}}) {
    if (from == nullptr) continue;
    add_routes_kernel<<<grid_for(ceil_div(E, 32)), dim3(32, 32), 0, stream>>>(
        from, static_cast<int>(blocks), static_cast<int>(E), device<double>(to));
    launched("add_routes_kernel");
  }
}

}  // namespace annulus::cuda
