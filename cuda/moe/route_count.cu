// Pairs of each expert and rows of each rank, by sub-range of tokens. 4*N*K bytes in.
//
//   grid   (sub-ranges, slices of a sub-range's tokens)
//   each   thread takes one token after the other; a block counts in shared memory and adds its counts to the
//          outputs. Whole numbers: any order gives the same
//   needs  4 bytes of shared memory an expert and rank
//   source checked against src/ops/cpu/route.cpp
#include "kernels/common.cuh"
#include "moe/route_count.h"

namespace annulus::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kSlice = 1024;       // tokens a block
constexpr std::int64_t kShared = 48 << 10;  // bytes a block

using Count = unsigned long long;  // what atomicAdd takes; the outputs are i64

__global__ void __launch_bounds__(kThreads)
    route_count_kernel(const std::int32_t* __restrict__ ids,  // (N, K)
                       Count* __restrict__ experts,           // (gridDim.x, E)
                       Count* __restrict__ rows,              // (gridDim.x, R)
                       std::int64_t N, std::int64_t range, int K, int E, int R) {
  extern __shared__ std::int32_t counts[];  // (E), (R)
  for (int i = static_cast<int>(threadIdx.x); i < E + R; i += kThreads) counts[i] = 0;
  __syncthreads();
  const std::int64_t begin = blockIdx.x * range, end = min(begin + range, N);
  const int X = E / R;
  for (std::int64_t slice = begin + blockIdx.y * kSlice; slice < end; slice += gridDim.y * kSlice)
    for (std::int64_t n = slice + threadIdx.x; n < min(slice + kSlice, end); n += kThreads) {
      const std::int32_t* const mine = ids + n * K;
      for (int k = 0; k < K; ++k) {
        const int id = mine[k];
        if (id < 0 || id >= E) continue;
        atomicAdd(&counts[id], 1);
        bool first = true;
        for (int j = 0; j < k; ++j) first = first && (mine[j] < 0 || mine[j] / X != id / X);
        if (first) atomicAdd(&counts[E + id / X], 1);
      }
    }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < E + R; i += kThreads) {
    if (counts[i] == 0) continue;
    Count* const to =
        i < E ? experts + std::int64_t{blockIdx.x} * E + i : rows + std::int64_t{blockIdx.x} * R + (i - E);
    atomicAdd(to, static_cast<Count>(counts[i]));
  }
}

}  // namespace

void launch_route_count(const RouteCount& a, cudaStream_t stream) {
  const std::int64_t N = a.ids.shape[0], K = a.ids.shape[1], E = a.experts.shape[1], R = a.rows.shape[1];
  const std::int64_t ranges = a.experts.shape[0], bytes = (E + R) * std::int64_t{sizeof(std::int32_t)};
  if (ranges == 0) return;
  need(bytes <= kShared, "route_count: more experts than a multiprocessor has memory for");
  for (const Tensor* t : {&a.experts, &a.rows})
    cu(cudaMemsetAsync(t->data, 0, static_cast<std::size_t>(t->bytes()), stream), "cudaMemsetAsync");
  const dim3 grid(grid_for(ranges), grid_for(ceil_div(std::min(N, a.range), kSlice), 65535));
  route_count_kernel<<<grid, kThreads, static_cast<std::size_t>(bytes), stream>>>(
      device<std::int32_t>(a.ids), reinterpret_cast<Count*>(device<std::int64_t>(a.experts)),
      reinterpret_cast<Count*>(device<std::int64_t>(a.rows)), N, a.range, static_cast<int>(K),
      static_cast<int>(E), static_cast<int>(R));
  launched("route_count_kernel");
}

}  // namespace annulus::cuda
