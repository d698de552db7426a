// Pairs of a received row and an expert, sorted by expert: a stable counting sort. 12*M*K bytes in, 8*P +
// 4*M*K out.
//
//   grid   a warp a chunk of pairs: once to count, once to write; a scan between (counting.cu)
//   each   lane takes a pair, 32 pairs at a time; lanes with the same expert find one another, the first of
//          them moves the expert's counter in shared memory
//   needs  4 bytes of shared memory an expert and warp; scratch for 4 bytes a chunk and expert
//   source checked against src/ops/cpu/dispatch.cpp
#include "kernels/common.cuh"
#include "moe/counting.h"
#include "moe/expert_index.h"

namespace annulus::cuda {
namespace {

constexpr int kMaxWarps = 4;
constexpr std::int64_t kChunk = 512;        // pairs at least
constexpr std::int64_t kShared = 48 << 10;  // bytes a block

/// Calls f(pair, expert or -1, lanes with the same expert) for each pair of a chunk, 32 at a time, by all
/// lanes together; lanes beyond the end have the pair -1. Counters may be read and written between.
template <class F>
__device__ __forceinline__ void for_pairs(const std::int32_t* slots, std::int64_t begin, std::int64_t end,
                                          F f) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (std::int64_t first = begin; first < end; first += 32) {
    const std::int64_t i = first + lane < end ? first + lane : -1;
    const int slot = i < 0 ? -1 : slots[i];
    f(i, slot, __match_any_sync(0xffffffffu, slot));
    __syncwarp();
  }
}

__global__ void __launch_bounds__(kMaxWarps * 32)
    count_pairs_kernel(const std::int32_t* __restrict__ slots,  // (pairs)
                       Counts counts, std::int64_t pairs) {
  extern __shared__ std::int32_t shared[];
  const int warps = static_cast<int>(blockDim.x / 32), lane = static_cast<int>(threadIdx.x % 32),
            X = static_cast<int>(counts.keys);
  std::int32_t* const count = shared + threadIdx.x / 32 * X;
  for (std::int64_t chunk = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32; chunk < counts.chunks;
       chunk += std::int64_t{gridDim.x} * warps) {
    for (int e = lane; e < X; e += 32) count[e] = 0;
    __syncwarp();
    const std::int64_t begin = chunk * counts.chunk, end = min(begin + counts.chunk, pairs);
    for_pairs(slots, begin, end, [&](std::int64_t, int slot, unsigned same) {
      if (slot >= 0 && slot < X && __ffs(static_cast<int>(same)) - 1 == lane) count[slot] += __popc(same);
    });
    for (int e = lane; e < X; e += 32) counts.of_chunk[e * counts.chunks + chunk] = count[e];
    __syncwarp();
  }
}

struct ExpertArgs {
  const std::int32_t* slots;  // (M, K)
  const float* shares;        // (M, K)
  std::int32_t* row;          // (P)
  float* share;               // (P)
  std::int32_t* place;        // (M, K)
  std::int64_t pairs, P;
  int K;
};

__global__ void __launch_bounds__(kMaxWarps * 32) expert_index_kernel(ExpertArgs a, Counts counts) {
  extern __shared__ std::int32_t shared[];
  const int warps = static_cast<int>(blockDim.x / 32), lane = static_cast<int>(threadIdx.x % 32),
            X = static_cast<int>(counts.keys);
  std::int32_t* const next = shared + threadIdx.x / 32 * X;
  for (std::int64_t chunk = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32; chunk < counts.chunks;
       chunk += std::int64_t{gridDim.x} * warps) {
    std::int32_t before = 0;  // pairs of experts before
    for (int e0 = 0; e0 < X; e0 += 32) {
      const int e = e0 + lane;
      const std::int32_t mine = e < X ? counts.of_key[e] : 0;
      std::int32_t up_to = mine;
      for (int o = 1; o < 32; o *= 2) {
        const std::int32_t left = __shfl_up_sync(0xffffffffu, up_to, o);
        if (lane >= o) up_to += left;
      }
      if (e < X) next[e] = before + up_to - mine + counts.of_chunk[e * counts.chunks + chunk];
      before += __shfl_sync(0xffffffffu, up_to, 31);
    }
    __syncwarp();
    const std::int64_t begin = chunk * counts.chunk, end = min(begin + counts.chunk, a.pairs);
    for_pairs(a.slots, begin, end, [&](std::int64_t i, int slot, unsigned same) {
      const bool its = slot >= 0 && slot < X;
      const std::int64_t p = its ? next[slot] + __popc(same & ((1u << lane) - 1)) : -1;
      __syncwarp();
      if (its && __ffs(static_cast<int>(same)) - 1 == lane) next[slot] += __popc(same);
      if (i >= 0) a.place[i] = static_cast<std::int32_t>(p);
      if (its && p < a.P) {
        a.row[p] = static_cast<std::int32_t>(i / a.K);
        a.share[p] = a.shares[i];
      }
    });
  }
}

}  // namespace

void launch_expert_index(const ExpertIndex& a, Scratch scratch, cudaStream_t stream) {
  const std::int64_t pairs = a.slots.size();
  if (pairs == 0) return;
  const std::int64_t bytes = a.experts * std::int64_t{sizeof(std::int32_t)};  // a warp
  need(bytes <= kShared, "expert_index: more experts than a multiprocessor has memory for");
  const std::int64_t warps = std::min<std::int64_t>(kMaxWarps, kShared / bytes);
  const Counts counts = make_counts(pairs, a.experts, kChunk, scratch);
  const ExpertArgs args{.slots = device<std::int32_t>(a.slots),
                        .shares = device<float>(a.shares),
                        .row = device<std::int32_t>(a.row),
                        .share = device<float>(a.share),
                        .place = device<std::int32_t>(a.place),
                        .pairs = pairs,
                        .P = a.row.shape[0],
                        .K = static_cast<int>(a.slots.shape[1])};
  const unsigned blocks = grid_for(ceil_div(counts.chunks, warps)),
                 threads = static_cast<unsigned>(warps * 32);
  const auto shared = static_cast<std::size_t>(warps * bytes);
  count_pairs_kernel<<<blocks, threads, shared, stream>>>(args.slots, counts, pairs);
  launched("count_pairs_kernel");
  launch_scan_counts(counts, stream);
  expert_index_kernel<<<blocks, threads, shared, stream>>>(args, counts);
  launched("expert_index_kernel");
}

}  // namespace annulus::cuda
