// Sums of counts over the chunks before. 8 bytes a count.
//
//   grid   one block a key
//   each   thread takes every 256th chunk; a block's 256 counts are summed by warp, then across warps
#include "kernels/common.cuh"
#include "moe/counting.h"

namespace annulus::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    scan_counts_kernel(std::int32_t* __restrict__ of_chunk,  // (gridDim.x, chunks)
                       std::int32_t* __restrict__ of_key,    // (gridDim.x)
                       std::int64_t chunks) {
  __shared__ std::int32_t part[kThreads / 32];
  std::int32_t* const counts = of_chunk + blockIdx.x * chunks;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  std::int32_t before = 0;
  for (std::int64_t first = 0; first < chunks; first += kThreads) {
    const std::int64_t i = first + threadIdx.x;
    const std::int32_t mine = i < chunks ? counts[i] : 0;
    std::int32_t up_to = mine;
    for (int o = 1; o < 32; o *= 2) {
      const std::int32_t left = __shfl_up_sync(0xffffffffu, up_to, o);
      if (lane >= o) up_to += left;
    }
    if (lane == 31) part[warp] = up_to;
    __syncthreads();
    std::int32_t warps_before = 0, all = 0;
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w < warp) warps_before += part[w];
      all += part[w];
    }
    if (i < chunks) counts[i] = before + warps_before + up_to - mine;
    before += all;
    __syncthreads();
  }
  if (threadIdx.x == 0) of_key[blockIdx.x] = before;
}

}  // namespace

Counts make_counts(std::int64_t items, std::int64_t keys, std::int64_t least, Scratch scratch) {
  const std::int64_t room = scratch.bytes / std::int64_t{sizeof(std::int32_t)} / keys - 1;
  need(room >= 1, "scratch memory is too small for one count of each key");
  Counts c;
  c.keys = keys;
  c.chunk = std::max(least, ceil_div(ceil_div(items, room), 32) * 32);
  c.chunks = ceil_div(items, c.chunk);
  c.of_key = static_cast<std::int32_t*>(scratch.data);
  c.of_chunk = c.of_key + keys;
  return c;
}

void launch_scan_counts(const Counts& c, cudaStream_t stream) {
  scan_counts_kernel<<<grid_for(c.keys), kThreads, 0, stream>>>(c.of_chunk, c.of_key, c.chunks);
  launched("scan_counts_kernel");
}

}  // namespace annulus::cuda
