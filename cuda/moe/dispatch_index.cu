// What a tile of tokens sends, by rank, then by token: a stable counting sort of (rank, token) pairs. About
// 8*N*K bytes in, 8*S*K + 4*N*R out.
//
//   grid   a warp a chunk of tokens: once to count, once to write; a scan between (counting.cu)
//   each   lane takes a token, 32 tokens at a time; whether it goes to a rank is asked of the whole warp by
//   one
//          vote a rank, and lane r keeps the number of rows that rank r has so far
//   needs  scratch for 4 bytes a chunk and rank
//   source checked against src/ops/cpu/dispatch.cpp
#include "kernels/common.cuh"
#include "moe/counting.h"
#include "moe/dispatch_index.h"

namespace annulus::cuda {
namespace {

constexpr int kWarps = 4;
constexpr std::int64_t kChunk = 256;  // tokens at least

/// Which of the 32 ranks from `first` on have an expert of this token.
__device__ __forceinline__ unsigned ranks_of(const std::int32_t* ids, int K, int X, int first) {
  unsigned ranks = 0;
  for (int k = 0; k < K; ++k) {
    const int rank = ids[k] < 0 ? -1 : ids[k] / X - first;
    if (rank >= 0 && rank < 32) ranks |= 1u << rank;
  }
  return ranks;
}

__global__ void __launch_bounds__(kWarps * 32)
    count_rows_kernel(const std::int32_t* __restrict__ ids,  // (N, K)
                      Counts counts, std::int64_t N, int K, int X) {
  const int lane = static_cast<int>(threadIdx.x % 32), R = static_cast<int>(counts.keys);
  for (std::int64_t chunk = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; chunk < counts.chunks;
       chunk += std::int64_t{gridDim.x} * kWarps)
    for (int first = 0; first < R; first += 32) {
      const int ranks = min(R - first, 32);
      std::int32_t count = 0;  // of rank first + lane
      const std::int64_t begin = chunk * counts.chunk, end = min(begin + counts.chunk, N);
      for (std::int64_t n = begin; n < end; n += 32) {
        const unsigned mine = n + lane < end ? ranks_of(ids + (n + lane) * K, K, X, first) : 0;
        for (int r = 0; r < ranks; ++r) {
          const unsigned goes = __ballot_sync(0xffffffffu, (mine >> r & 1) != 0);
          if (r == lane) count += __popc(goes);
        }
      }
      if (lane < ranks) counts.of_chunk[(first + lane) * counts.chunks + chunk] = count;
    }
}

struct DispatchArgs {
  const std::int32_t* ids;  // (N, K)
  const float* weights;     // (N, K)
  std::int32_t* token;      // (S)
  std::int32_t* slots;      // (S, K)
  float* shares;            // (S, K)
  std::int32_t* place;      // (N, R)
  std::int64_t N, S;
  int K, X;
};

__global__ void __launch_bounds__(kWarps * 32) dispatch_index_kernel(DispatchArgs a, Counts counts) {
  const int lane = static_cast<int>(threadIdx.x % 32), R = static_cast<int>(counts.keys), K = a.K;
  const unsigned before_me = (1u << lane) - 1;
  for (std::int64_t chunk = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; chunk < counts.chunks;
       chunk += std::int64_t{gridDim.x} * kWarps) {
    std::int32_t ranks_before = 0;  // rows of all ranks before `first`
    for (int first = 0; first < R; first += 32) {
      const int ranks = min(R - first, 32);
      const std::int32_t rows = lane < ranks ? counts.of_key[first + lane] : 0;
      std::int32_t up_to = rows;
      for (int o = 1; o < 32; o *= 2) {
        const std::int32_t left = __shfl_up_sync(0xffffffffu, up_to, o);
        if (lane >= o) up_to += left;
      }
      std::int32_t next = ranks_before + up_to - rows;  // the next row of rank first + lane
      if (lane < ranks) next += counts.of_chunk[(first + lane) * counts.chunks + chunk];
      ranks_before += __shfl_sync(0xffffffffu, up_to, 31);

      const std::int64_t begin = chunk * counts.chunk, end = min(begin + counts.chunk, a.N);
      for (std::int64_t n0 = begin; n0 < end; n0 += 32) {
        const std::int64_t n = n0 + lane;
        const unsigned mine = n < end ? ranks_of(a.ids + n * K, K, a.X, first) : 0;
        for (int r = 0; r < ranks; ++r) {
          const unsigned goes = __ballot_sync(0xffffffffu, (mine >> r & 1) != 0);
          const std::int64_t s = __shfl_sync(0xffffffffu, next, r) + __popc(goes & before_me);
          if (r == lane) next += __popc(goes);
          if (n >= end) continue;
          const bool here = (mine >> r & 1) != 0;
          a.place[n * R + first + r] = here ? static_cast<std::int32_t>(s) : -1;
          if (!here || s >= a.S) continue;
          a.token[s] = static_cast<std::int32_t>(n);
          for (int k = 0; k < K; ++k) {
            const int slot = a.ids[n * K + k] - (first + r) * a.X;  // negative for padding too
            const bool its = slot >= 0 && slot < a.X;
            a.slots[s * K + k] = its ? slot : -1;
            a.shares[s * K + k] = its ? a.weights[n * K + k] : 0.f;
          }
        }
      }
    }
  }
}

}  // namespace

void launch_dispatch_index(const DispatchIndex& a, Scratch scratch, cudaStream_t stream) {
  const std::int64_t N = a.ids.shape[0], R = a.place.shape[1];
  if (N == 0 || R == 0) return;
  const Counts counts = make_counts(N, R, kChunk, scratch);
  const DispatchArgs args{.ids = device<std::int32_t>(a.ids),
                          .weights = device<float>(a.weights),
                          .token = device<std::int32_t>(a.token),
                          .slots = device<std::int32_t>(a.slots),
                          .shares = device<float>(a.shares),
                          .place = device<std::int32_t>(a.place),
                          .N = N,
                          .S = a.token.shape[0],
                          .K = static_cast<int>(a.ids.shape[1]),
                          .X = static_cast<int>(a.experts)};
  const unsigned blocks = grid_for(ceil_div(counts.chunks, kWarps));
  count_rows_kernel<<<blocks, kWarps * 32, 0, stream>>>(args.ids, counts, N, args.K, args.X);
  launched("count_rows_kernel");
  launch_scan_counts(counts, stream);
  dispatch_index_kernel<<<blocks, kWarps * 32, 0, stream>>>(args, counts);
  launched("dispatch_index_kernel");
}

}  // namespace annulus::cuda
