// Embedding look-up and its gradient. Memory bound. Forward: 2*N*C*sizeof(T) bytes. Backward: N*C*sizeof(T)
// in, 8*C bytes in and out for each distinct id.
//
//   grid   fwd: a block per token; bwd: (token in sorted order, slice of columns); a block whose token does
//          not begin a run of equal ids has nothing to do
//   each   fwd thread copies pieces of the row; bwd thread owns kWide columns and walks the run in order, so
//          the sum is in the order of n whatever the grid: deterministic without atomics
//   needs  offsets are 64-bit; any C (odd C takes one element a thread)
//   source checked against src/ops/cpu
#include "kernels/common.cuh"
#include "kernels/embed.h"

namespace annulus::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kAhead = 8;  // rows of dy in flight a thread

template <class Piece>
__global__ void embed_fwd_kernel(const std::int32_t* __restrict__ ids,  // (N)
                                 const Piece* __restrict__ table,       // (V, pieces)
                                 Piece* __restrict__ y,                 // (N, pieces)
                                 std::int64_t N, std::int64_t pieces) {
  for (std::int64_t n = blockIdx.x; n < N; n += gridDim.x) {
    const Piece* from = table + ids[n] * pieces;
    for (std::int64_t c = threadIdx.x; c < pieces; c += kThreads) y[n * pieces + c] = from[c];
  }
}

template <class T, int W>
__global__ void __launch_bounds__(kThreads) embed_bwd_kernel(const std::int32_t* __restrict__ ids,    // (N)
                                                             const std::int32_t* __restrict__ order,  // (N)
                                                             const T* __restrict__ dy,    // (N, C)
                                                             float* __restrict__ dtable,  // (V, C)
                                                             std::int64_t N, std::int64_t C) {
  __shared__ std::int32_t rows[kThreads];
  for (std::int64_t start = blockIdx.x; start < N; start += gridDim.x) {
    const std::int64_t id = ids[order[start]];
    if (start > 0 && ids[order[start - 1]] == id) continue;  // the same for the whole block
    for (std::int64_t c0 = std::int64_t{blockIdx.y} * kThreads * W; c0 < C;
         c0 += std::int64_t{gridDim.y} * kThreads * W) {
      const std::int64_t c = c0 + threadIdx.x * W;
      float sum[W] = {};
      int count = kThreads;
      for (std::int64_t at = start; count == kThreads; at += kThreads) {
        const std::int64_t mine = at + threadIdx.x;
        const std::int32_t row = mine < N ? order[mine] : 0;
        rows[threadIdx.x] = row;
        count = __syncthreads_count(mine < N && ids[row] == id);
        if (c < C) {
          int j = 0;
          for (; j + kAhead <= count; j += kAhead) {
            float v[kAhead][W];
#pragma unroll
            for (int u = 0; u < kAhead; ++u) load(v[u], dy + rows[j + u] * C + c);
#pragma unroll
            for (int u = 0; u < kAhead; ++u)
#pragma unroll
              for (int w = 0; w < W; ++w) sum[w] += v[u][w];
          }
          for (; j < count; ++j) {
            float v[W];
            load(v, dy + rows[j] * C + c);
#pragma unroll
            for (int w = 0; w < W; ++w) sum[w] += v[w];
          }
        }
        __syncthreads();
      }
      if (c < C) {
        float* to = dtable + id * C + c;
        float before[W];
        load(before, to);
#pragma unroll
        for (int w = 0; w < W; ++w) sum[w] += before[w];
        store(to, sum);
      }
    }
  }
}

template <class T>
void embed_bwd(const EmbedBwd& a, cudaStream_t stream) {
  const std::int64_t N = a.dy.shape[0], C = a.dy.shape[1];
  const bool wide = wide_rows(a.dy, kWide<T>) && wide_rows(a.dtable, kWide<T>);
  const auto kernel = wide ? embed_bwd_kernel<T, kWide<T>> : embed_bwd_kernel<T, 1>;
  const dim3 grid(grid_for(N), grid_for(ceil_div(C, kThreads * (wide ? kWide<T> : 1)), 65535));
  kernel<<<grid, kThreads, 0, stream>>>(device<std::int32_t>(a.ids), device<std::int32_t>(a.order),
                                        device<T>(a.dy), device<float>(a.dtable), N, C);
  launched("embed_bwd_kernel");
}

}  // namespace

void launch_embed_fwd(const EmbedFwd& a, cudaStream_t stream) {
  const std::int64_t N = a.ids.shape[0], C = a.table.shape[1];
  a.y.expect({N, C});
  need(a.y.dtype == a.table.dtype && a.y.contiguous() && a.table.contiguous(), "embed_fwd: layout");
  if (N * C == 0) return;
  const auto copy = [&]<class Piece>(Piece) {
    const std::int64_t pieces = C * bytes_of(a.y.dtype) / static_cast<std::int64_t>(sizeof(Piece));
    embed_fwd_kernel<Piece><<<grid_for(N), kThreads, 0, stream>>>(device<std::int32_t>(a.ids),
                                                                  static_cast<const Piece*>(a.table.data),
                                                                  static_cast<Piece*>(a.y.data), N, pieces);
    launched("embed_fwd_kernel");
  };
  const std::int64_t width = 16 / bytes_of(a.y.dtype);
  if (wide_rows(a.y, width) && wide_rows(a.table, width))
    copy(uint4{});
  else if (is_bf16(a.y))
    copy(std::uint16_t{});
  else
    copy(std::uint32_t{});
}

void launch_embed_bwd(const EmbedBwd& a, cudaStream_t stream) {
  const std::int64_t N = a.dy.shape[0], C = a.dy.shape[1];
  a.ids.expect({N}), a.order.expect({N});
  need(a.dtable.shape[1] == C && a.dy.contiguous() && a.dtable.contiguous(), "embed_bwd: layout");
  if (N * C == 0) return;
  is_bf16(a.dy) ? embed_bwd<nv_bf16>(a, stream) : embed_bwd<float>(a, stream);
}

}  // namespace annulus::cuda
