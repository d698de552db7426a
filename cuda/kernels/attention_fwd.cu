// Attention, forward, in bf16 on the tensor cores (mma.sync): arithmetic bound, 4*D flop a visible pair.
//
//   grid   one block of 4 warps per 128 queries of a head; the heads that share keys and values are
//          neighbours, and late queries, which see most, come first
//   each   warp owns 32 queries and all of D. Keys pass in tiles of 64: while the scores of a tile are
//          computed its values arrive, and while these are used the next keys do. Tiles that no query sees
//          are skipped, tiles that all see are not masked
//   needs  D = 64 or 128, rows on 16-byte boundaries; deterministic; offsets are 64-bit
//   source Dao 2023 (FlashAttention-2), alg. 1; merge of blocks: Liu et al. 2023; checked against src/ops/cpu
#include "kernels/attention_tile.cuh"

namespace annulus::cuda {
namespace {

constexpr int kQueries = 128;

template <int D>
struct Shared {
  nv_bf16 q[kQueries * D], k[kTileKeys * D], v[kTileKeys * D];
  std::int64_t first[kQueries];
};

/// A warp's running softmax over its 32 queries: two blocks of 16 rows, of which a lane holds parts of two.
template <int D>
struct Running {
  float out[2][D / 8][4] = {};
  float top[2][2] = {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}};
  float sum[2][2] = {};  // of the lane's own columns
};

/// Scores that their query does not see become -inf. `query` is the lane's first row of the tile.
__device__ __forceinline__ void mask(float (&s)[2][8][4], const std::int64_t* first, int query,
                                     std::int64_t query_position, std::int64_t key_position, int keys,
                                     int lane) {
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = query + m * 16 + half * 8;
      const int from = near(first[row] - key_position);
      const int to = min(near(query_position + row + 1 - key_position), keys);
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int column = n * 8 + (lane % 4) * 2 + e;
          if (column < from || column >= to) s[m][n][half * 2 + e] = -INFINITY;
        }
    }
}

/// Scores become weights 2^(scale2 (s - top)), sums and outputs are brought to the new top.
template <int D>
__device__ __forceinline__ void soften(float (&s)[2][8][4], Running<D>& r, float scale2) {
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = r.top[m][half];
#pragma unroll
      for (int n = 0; n < 8; ++n) top = fmaxf(top, fmaxf(s[m][n][half * 2], s[m][n][half * 2 + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      const float base = top == -INFINITY ? 0.f : top * scale2;  // no key seen yet: all weights are 2^-inf
      const float shrink = exp2_fast(r.top[m][half] * scale2 - base);
      r.top[m][half] = top;
      float sum = r.sum[m][half] * shrink;
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[m][n][half * 2 + e];
          x = exp2_fast(fmaf(x, scale2, -base));
          sum += x;
        }
      r.sum[m][half] = sum;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        r.out[m][n][half * 2] *= shrink;
        r.out[m][n][half * 2 + 1] *= shrink;
      }
    }
}

/// Merges a lane's rows into what earlier calls left, and writes them.
template <int D>
__device__ __forceinline__ void finish(const AttentionFwdArgs& a, Running<D>& r, std::int64_t tile_row,
                                       int query, int queries, int h, int lane) {
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = lane_sum(r.sum[m][half], 4);
      const int i = query + m * 16 + half * 8;
      const std::int64_t row = tile_row + i;
      float* lse = a.lse + h * a.lse_stride + row;
      const float before = a.begins || i >= queries ? -INFINITY : *lse;
      __syncwarp();  // all four lanes of the row have read lse before one writes it
      if (i >= queries) continue;
      const float block = sum > 0.f ? r.top[m][half] * a.scale + logf(sum) : -INFINITY;
      const float top = fmaxf(before, block);
      float keep = 0.f, take = 0.f, after = -INFINITY;
      if (top != -INFINITY) {
        keep = expf(before - top), take = expf(block - top);
        const float total = keep + take;
        after = top + logf(total);
        keep /= total;
        take = sum > 0.f ? take / (total * sum) : 0.f;
      }
      if (lane % 4 == 0) *lse = after;
      const std::int64_t column = std::int64_t{h} * D + (lane % 4) * 2;
      float* acc = a.acc + row * a.acc_stride + column;
      nv_bf16* o = static_cast<nv_bf16*>(a.o) + row * a.o_stride + column;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        float x = r.out[m][n][half * 2] * take, y = r.out[m][n][half * 2 + 1] * take;
        if (keep != 0.f) {
          const float2 old = *reinterpret_cast<const float2*>(acc + n * 8);
          x += keep * old.x, y += keep * old.y;
        }
        if (a.ends)
          *reinterpret_cast<std::uint32_t*>(o + n * 8) = pack_bf16(x, y);
        else
          *reinterpret_cast<float2*>(acc + n * 8) = make_float2(x, y);
      }
    }
}

template <int D>
__global__ void __launch_bounds__(kTileThreads, 2)
    attention_fwd_kernel(const __grid_constant__ AttentionFwdArgs a) {
  extern __shared__ __align__(256) unsigned char raw[];
  Shared<D>& shared = *reinterpret_cast<Shared<D>*>(raw);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int ratio = a.H / a.G;
  const auto tiles = static_cast<unsigned>(ceil_div(a.queries.count, kQueries));
  const unsigned place = blockIdx.x / ratio, tile = tiles - 1 - place % tiles;
  const int g = static_cast<int>(place / tiles), h = g * ratio + static_cast<int>(blockIdx.x % ratio);

  const std::int64_t from = std::int64_t{tile} * kQueries, row = a.queries.at + from;
  const int queries = static_cast<int>(min(a.queries.count - from, std::int64_t{kQueries}));
  const std::int64_t position = a.queries.position + from;
  const int mine = static_cast<int>(threadIdx.x);
  shared.first[mine] = a.first[row + min(mine, queries - 1)];
  __syncthreads();
  const nv_bf16* q = static_cast<const nv_bf16*>(a.q) + row * a.q_stride + std::int64_t{h} * D;
  const nv_bf16* k = static_cast<const nv_bf16*>(a.k) + std::int64_t{g} * D;
  const nv_bf16* v = static_cast<const nv_bf16*>(a.v) + std::int64_t{g} * D;
  const std::uint32_t q_tile = shared_address(shared.q), k_tile = shared_address(shared.k);
  const std::uint32_t v_tile = shared_address(shared.v);

  KeyWalk walk{.runs = a.keys, .count = a.count};
  const int query = warp * 32 + lane / 4;  // the lane's first row
  Running<D> r;
  bool more = walk.next(shared.first[0], position + queries - 1);
  if (more) {
    load_tile<D, kQueries>(q_tile, q, a.q_stride, queries);
    load_tile<D, kTileKeys>(k_tile, k + walk.row() * a.k_stride, a.k_stride, walk.keys());
  }
  const std::uint32_t q_at = row_address<D>(q_tile, warp * 32, lane);
  const std::uint32_t k_at = column_address<D>(k_tile, 0, lane), v_at = row_address<D>(v_tile, 0, lane);
  while (more) {
    const int keys = walk.keys();
    const std::int64_t key_position = walk.position();
    copies_arrived();
    __syncthreads();  // keys are there; the values of the tile before are used up
    load_tile<D, kTileKeys>(v_tile, v + walk.row() * a.v_stride, a.v_stride, keys);
    float s[2][8][4];
    product_rows<D, 2>(s, q_at, k_at);
    if (keys < kTileKeys || key_position < shared.first[kQueries - 1] ||
        key_position + kTileKeys - 1 > position)
      mask(s, shared.first, query, position, key_position, keys, lane);
    more = walk.next(shared.first[0], position + queries - 1);
    copies_arrived();
    __syncthreads();  // values are there; the keys are used up
    if (more) load_tile<D, kTileKeys>(k_tile, k + walk.row() * a.k_stride, a.k_stride, walk.keys());
    soften(s, r, a.scale * kLog2e);
    std::uint32_t weights[2][4][4];
    as_left(weights[0], s[0]);
    as_left(weights[1], s[1]);
    product_sum<D, 2>(r.out, weights, v_at);
  }
  finish<D>(a, r, row, query, queries, h, lane);
}

template <int D>
void launch(const AttentionFwdArgs& a, cudaStream_t stream) {
  const auto bytes = static_cast<int>(sizeof(Shared<D>));
  cu(cudaFuncSetAttribute(attention_fwd_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
     "cudaFuncSetAttribute");
  const std::int64_t blocks = ceil_div(a.queries.count, kQueries) * a.H;
  need(blocks <= 0x7fffffff, "attention_fwd: too many tiles");
  attention_fwd_kernel<D><<<unsigned(blocks), kTileThreads, bytes, stream>>>(a);
  launched("attention_fwd_kernel");
}

}  // namespace

bool launch_attention_fwd_tiles(const AttentionFwdArgs& a, cudaStream_t stream) {
  if (a.D == 64)
    launch<64>(a, stream);
  else if (a.D == 128)
    launch<128>(a, stream);
  else
    return false;
  return true;
}

}  // namespace annulus::cuda
