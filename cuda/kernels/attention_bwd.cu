// Attention, backward, in bf16 on the tensor cores (mma.sync): arithmetic bound. The gradient of keys and
// values costs 8*D flop a visible pair, that of queries 6*D: the scores are computed in both, so that every
// sum has one owner and one order. Deterministic.
//
//   grid   dkv: one block of 4 warps per 64 keys of a key/value head; dq: one per 64 queries of a head
//   each   dkv: warp owns 16 keys and all of D of dk and dv, and goes through the heads that read them and,
//          in tiles of 64, the queries that see them. dq: warp owns 16 queries, keys pass in tiles of 64. The
//          next tile arrives while one is used; hidden tiles are skipped, full ones not masked
//   needs  D = 64 or 128, rows on 16-byte boundaries; offsets are 64-bit
//   source Dao 2023 (FlashAttention-2), alg. 2, split in two; checked against src/ops/cpu
//
// dkv computes transposed scores (keys by queries): probabilities and their gradients are then, in
// registers, the left operands of the products that follow, and never go through memory.
#include "kernels/attention_tile.cuh"

namespace annulus::cuda {
namespace {

constexpr int kTile = kTileKeys;  // queries of a tile, too

/// Gradient in f32 is added to, gradient in bf16 is overwritten.
__device__ __forceinline__ void put(void* base, std::int64_t at, float x, float y, bool overwrite) {
  if (overwrite) {
    *reinterpret_cast<std::uint32_t*>(static_cast<nv_bf16*>(base) + at) = pack_bf16(x, y);
  } else {
    float2* to = reinterpret_cast<float2*>(static_cast<float*>(base) + at);
    const float2 old = *to;
    *to = make_float2(old.x + x, old.y + y);
  }
}

template <int D>
__device__ __forceinline__ void put_rows(void* base, std::int64_t row, std::int64_t stride,
                                         std::int64_t column, const float (&c)[D / 8][4], float scale,
                                         int first_row, int rows, bool overwrite, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = first_row + half * 8 + lane / 4;
    if (i >= rows) continue;
    const std::int64_t at = (row + i) * stride + column + (lane % 4) * 2;
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
      put(base, at + n * 8, c[n][half * 2] * scale, c[n][half * 2 + 1] * scale, overwrite);
  }
}

// ---- queries ----

template <int D>
struct SharedDq {
  nv_bf16 q[kTile * D], d_o[kTile * D];
  struct Stage {
    nv_bf16 k[kTile * D], v[kTile * D];
  } stage[2];
  std::int64_t first[kTile];
};

/// Probabilities p = 2^(scale2 s - lse2) and their gradients p (ds - delta) of 16 queries and 64 keys; hidden
/// pairs 0. `row` is the lane's first row of the tile, [from, to) the keys that each of its two rows sees.
__device__ __forceinline__ void weigh(const float (&s)[8][4], float (&ds)[8][4], const float (&lse2)[2],
                                      const float (&delta)[2], const int (&from)[2], const int (&to)[2],
                                      bool partial, float scale2, int lane) {
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int half = e / 2, column = n * 8 + (lane % 4) * 2 + e % 2;
      float p = exp2_fast(fmaf(s[n][e], scale2, -lse2[half]));
      if (partial && (column < from[half] || column >= to[half])) p = 0.f;
      ds[n][e] = p * (ds[n][e] - delta[half]);
    }
}

template <int D>
__global__ void __launch_bounds__(kTileThreads, 2)
    attention_dq_kernel(const __grid_constant__ AttentionBwdArgs a) {
  extern __shared__ __align__(256) unsigned char raw[];
  SharedDq<D>& shared = *reinterpret_cast<SharedDq<D>*>(raw);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int ratio = a.H / a.G;
  const auto tiles = static_cast<unsigned>(ceil_div(a.mine.count, kTile));
  const unsigned place = blockIdx.x / ratio, tile = tiles - 1 - place % tiles;  // late queries see most
  const int g = static_cast<int>(place / tiles), h = g * ratio + static_cast<int>(blockIdx.x % ratio);

  const std::int64_t start = std::int64_t{tile} * kTile, row = a.mine.at + start;
  const int queries = static_cast<int>(min(a.mine.count - start, std::int64_t{kTile}));
  const std::int64_t position = a.mine.position + start;
  const int mine = static_cast<int>(threadIdx.x) % kTile;
  shared.first[mine] = a.first[row + min(mine, queries - 1)];
  __syncthreads();
  const nv_bf16* k = static_cast<const nv_bf16*>(a.k) + std::int64_t{g} * D;
  const nv_bf16* v = static_cast<const nv_bf16*>(a.v) + std::int64_t{g} * D;
  const std::uint32_t q_tile = shared_address(shared.q), d_o_tile = shared_address(shared.d_o);
  const std::uint32_t k_tile = shared_address(shared.stage[0].k), v_tile = shared_address(shared.stage[0].v);
  constexpr std::uint32_t kStage = sizeof(typename SharedDq<D>::Stage);

  KeyWalk walk{.runs = a.others, .count = a.count};
  const auto fetch = [&](std::uint32_t stage) {
    load_tile<D, kTile>(k_tile + stage, k + walk.row() * a.k_stride, a.k_stride, walk.keys());
    load_tile<D, kTile>(v_tile + stage, v + walk.row() * a.v_stride, a.v_stride, walk.keys());
  };
  bool more = walk.next(shared.first[0], position + queries - 1);
  if (more) {
    load_tile<D, kTile>(q_tile, static_cast<const nv_bf16*>(a.q) + row * a.q_stride + std::int64_t{h} * D,
                        a.q_stride, queries);
    load_tile<D, kTile>(d_o_tile,
                        static_cast<const nv_bf16*>(a.d_o) + row * a.d_o_stride + std::int64_t{h} * D,
                        a.d_o_stride, queries);
    fetch(0);
  }
  const int query = warp * 16 + lane / 4;  // the lane's first row; the second is 8 further
  const float scale2 = a.scale * kLog2e;
  float lse2[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t i = row + min(query + half * 8, queries - 1);
    const float lse = a.lse[h * a.lse_stride + i];
    lse2[half] = lse == -INFINITY ? INFINITY : lse * kLog2e;  // never saw a key: all probabilities are 2^-inf
    delta[half] = a.delta[h * a.delta_stride + i];
  }
  float dq[1][D / 8][4] = {};
  std::uint32_t stage = 0;
  while (more) {
    const int keys = walk.keys();
    const std::int64_t key_position = walk.position();
    copies_arrived();
    __syncthreads();  // this tile is there; the other stage is used up
    more = walk.next(shared.first[0], position + queries - 1);
    if (more) fetch(kStage - stage);
    float s[1][8][4], ds[1][8][4];
    product_rows<D, 1>(s, row_address<D>(q_tile, warp * 16, lane),
                       column_address<D>(k_tile + stage, 0, lane));
    product_rows<D, 1>(ds, row_address<D>(d_o_tile, warp * 16, lane),
                       column_address<D>(v_tile + stage, 0, lane));
    int from[2], to[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = query + half * 8;
      from[half] = near(shared.first[i] - key_position);
      to[half] = min(near(position + i + 1 - key_position), keys);
    }
    const bool partial =
        keys < kTile || key_position < shared.first[kTile - 1] || key_position + kTile - 1 > position;
    if (partial)
      weigh(s[0], ds[0], lse2, delta, from, to, true, scale2, lane);
    else
      weigh(s[0], ds[0], lse2, delta, from, to, false, scale2, lane);
    std::uint32_t left[1][4][4];
    as_left(left[0], ds[0]);
    product_sum<D, 1>(dq, left, row_address<D>(k_tile + stage, 0, lane));
    stage = kStage - stage;
  }
  put_rows<D>(a.dq, row, a.dq_stride, std::int64_t{h} * D, dq[0], a.scale, warp * 16, queries, a.overwrite,
              lane);
}

// ---- keys and values ----

template <int D>
struct SharedDkv {
  nv_bf16 k[kTile * D], v[kTile * D];
  struct Stage {
    nv_bf16 q[kTile * D], d_o[kTile * D];
    float lse[kTile], delta[kTile];
    std::int64_t first[kTile];
  } stage[2];
  int begin[kMaxRuns], end[kMaxRuns];  // of each run of queries: those that see a key of the tile
};

/// The number of queries of a run whose first visible position is at most `last`; `first` does not decrease.
/// All lanes of a warp search together, 33 parts at a time.
__device__ __forceinline__ int reach(const std::int64_t* first, int count, std::int64_t last, int lane) {
  int low = 0, high = count;  // the answer lies in [low, high]
  while (low < high) {
    const int span = high - low, probe = low + static_cast<int>(std::int64_t{span} * (lane + 1) / 33);
    const unsigned within = __ballot_sync(0xffffffffu, first[probe] <= last);
    const int below = __popc(within);  // probes do not decrease, so the lowest `below` of them are within
    const int after = __shfl_sync(0xffffffffu, probe, max(below - 1, 0));
    const int until = __shfl_sync(0xffffffffu, probe, min(below, 31));
    if (below > 0) low = after + 1;
    if (below < 32) high = until;
  }
  return low;
}

/// Tiles of queries that see a key of the block's tile: heads of the group, then runs, then tiles.
template <int D>
struct QueryWalk {
  const AttentionBwdArgs& a;
  const SharedDkv<D>& shared;
  int head, last_head, run = -1, at = 0, end = 0;

  __device__ __forceinline__ bool next() {
    at += kTile;
    while (at >= end) {
      if (++run >= a.count) {
        if (++head > last_head) return false;
        run = 0;
      }
      at = shared.begin[run], end = shared.end[run];
    }
    return true;
  }
  __device__ __forceinline__ std::int64_t row() const { return a.others[run].at + at; }
  __device__ __forceinline__ std::int64_t position() const { return a.others[run].position + at; }
  __device__ __forceinline__ int queries() const { return min(end - at, kTile); }
};

/// As above for 16 keys (rows) and 64 queries (columns): s becomes p, ds its gradient. `first`, `lse`,
/// `delta` are the queries'; `distance` is the lane's first key position less that of the tile's first query.
__device__ __forceinline__ void weigh_transposed(float (&s)[8][4], float (&ds)[8][4], const float* lse,
                                                 const float* delta, const std::int64_t* first, bool partial,
                                                 std::int64_t key_position, int distance, float scale2,
                                                 int lane) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const int column = n * 8 + (lane % 4) * 2;
    const float2 l = *reinterpret_cast<const float2*>(lse + column);
    const float2 d = *reinterpret_cast<const float2*>(delta + column);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float p = exp2_fast(fmaf(s[n][e], scale2, -(e % 2 ? l.y : l.x) * kLog2e));
      if (partial) {
        const int key = e / 2 * 8, query = column + e % 2;
        if (query < distance + key || first[query] > key_position + key) p = 0.f;
      }
      s[n][e] = p;
      ds[n][e] = p * (ds[n][e] - (e % 2 ? d.y : d.x));
    }
  }
}

template <int D>
__global__ void __launch_bounds__(kTileThreads, 2)
    attention_dkv_kernel(const __grid_constant__ AttentionBwdArgs a) {
  extern __shared__ __align__(256) unsigned char raw[];
  SharedDkv<D>& shared = *reinterpret_cast<SharedDkv<D>*>(raw);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int ratio = a.H / a.G;
  const auto tiles = static_cast<unsigned>(ceil_div(a.mine.count, kTile));
  const int g = static_cast<int>(blockIdx.x / tiles);
  const std::int64_t start = std::int64_t{blockIdx.x % tiles} * kTile, row = a.mine.at + start;
  const int keys = static_cast<int>(min(a.mine.count - start, std::int64_t{kTile}));
  const std::int64_t position = a.mine.position + start;

  load_tile<D, kTile>(shared_address(shared.k),
                      static_cast<const nv_bf16*>(a.k) + row * a.k_stride + std::int64_t{g} * D, a.k_stride,
                      keys);
  load_tile<D, kTile>(shared_address(shared.v),
                      static_cast<const nv_bf16*>(a.v) + row * a.v_stride + std::int64_t{g} * D, a.v_stride,
                      keys);
  for (int i = warp; i < a.count; i += kTileThreads / 32) {
    const Run run = a.others[i];
    const auto begin = min(max(position - run.position, std::int64_t{0}), run.count);
    const int end =
        begin < run.count ? reach(a.first + run.at, int(run.count), position + keys - 1, lane) : 0;
    if (lane == 0) shared.begin[i] = static_cast<int>(begin), shared.end[i] = end;
  }
  __syncthreads();

  constexpr std::uint32_t kStage = sizeof(typename SharedDkv<D>::Stage);
  const std::uint32_t q_tile = shared_address(shared.stage[0].q),
                      d_o_tile = shared_address(shared.stage[0].d_o);
  QueryWalk<D> walk{.a = a, .shared = shared, .head = g * ratio, .last_head = g * ratio + ratio - 1};
  const auto fetch = [&](std::uint32_t stage) {
    const std::int64_t from = walk.row();
    const int queries = walk.queries();
    load_tile<D, kTile>(q_tile + stage,
                        static_cast<const nv_bf16*>(a.q) + from * a.q_stride + std::int64_t{walk.head} * D,
                        a.q_stride, queries);
    load_tile<D, kTile>(
        d_o_tile + stage,
        static_cast<const nv_bf16*>(a.d_o) + from * a.d_o_stride + std::int64_t{walk.head} * D, a.d_o_stride,
        queries);
    // Rows past the end are zero: their probabilities are then 1, and meet zeros in every product.
    const int i = static_cast<int>(threadIdx.x) % kTile;
    const bool there = i < queries;
    const std::int64_t at = from + (there ? i : 0);
    if (threadIdx.x < kTile) {
      copy_async<4>(shared_address(shared.stage[0].lse + i) + stage, a.lse + walk.head * a.lse_stride + at,
                    there);
      copy_async<4>(shared_address(shared.stage[0].delta + i) + stage,
                    a.delta + walk.head * a.delta_stride + at, there);
    } else {
      copy_async<8>(shared_address(shared.stage[0].first + i) + stage, a.first + at, there);
    }
  };
  float dk[1][D / 8][4] = {}, dv[1][D / 8][4] = {};
  const float scale2 = a.scale * kLog2e;
  std::uint32_t stage = 0;
  bool more = walk.next();
  if (more) fetch(0);
  while (more) {
    const int queries = walk.queries();
    const std::int64_t query_position = walk.position();
    copies_arrived();
    __syncthreads();  // this tile is there; the other stage is used up
    more = walk.next();
    if (more) fetch(kStage - stage);
    float s[1][8][4], ds[1][8][4];
    product_rows<D, 1>(s, row_address<D>(shared_address(shared.k), warp * 16, lane),
                       column_address<D>(q_tile + stage, 0, lane));
    product_rows<D, 1>(ds, row_address<D>(shared_address(shared.v), warp * 16, lane),
                       column_address<D>(d_o_tile + stage, 0, lane));
    const auto& now = shared.stage[stage / kStage];
    const std::int64_t key_position = position + warp * 16 + lane / 4;
    const bool partial = query_position < position + kTile - 1 || now.first[queries - 1] > position;
    if (partial)
      weigh_transposed(s[0], ds[0], now.lse, now.delta, now.first, true, key_position,
                       near(key_position - query_position), scale2, lane);
    else
      weigh_transposed(s[0], ds[0], now.lse, now.delta, now.first, false, 0, 0, scale2, lane);
    std::uint32_t left[1][4][4];
    as_left(left[0], s[0]);
    product_sum<D, 1>(dv, left, row_address<D>(d_o_tile + stage, 0, lane));
    as_left(left[0], ds[0]);
    product_sum<D, 1>(dk, left, row_address<D>(q_tile + stage, 0, lane));
    stage = kStage - stage;
  }
  put_rows<D>(a.dk, row, a.dk_stride, std::int64_t{g} * D, dk[0], a.scale, warp * 16, keys, a.overwrite,
              lane);
  put_rows<D>(a.dv, row, a.dv_stride, std::int64_t{g} * D, dv[0], 1.f, warp * 16, keys, a.overwrite, lane);
}

template <class Kernel>
void launch(Kernel kernel, std::size_t bytes, std::int64_t heads, const AttentionBwdArgs& a,
            cudaStream_t stream) {
  cu(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
     "cudaFuncSetAttribute");
  const std::int64_t blocks = ceil_div(a.mine.count, kTile) * heads;
  need(blocks <= 0x7fffffff, "attention_bwd: too many tiles");
  kernel<<<unsigned(blocks), kTileThreads, bytes, stream>>>(a);
  launched("attention_bwd_kernel");
}

}  // namespace

bool launch_attention_dq_tiles(const AttentionBwdArgs& a, cudaStream_t stream) {
  if (a.D == 64)
    launch(attention_dq_kernel<64>, sizeof(SharedDq<64>), a.H, a, stream);
  else if (a.D == 128)
    launch(attention_dq_kernel<128>, sizeof(SharedDq<128>), a.H, a, stream);
  else
    return false;
  return true;
}

bool launch_attention_dkv_tiles(const AttentionBwdArgs& a, cudaStream_t stream) {
  if (a.D == 64)
    launch(attention_dkv_kernel<64>, sizeof(SharedDkv<64>), a.G, a, stream);
  else if (a.D == 128)
    launch(attention_dkv_kernel<128>, sizeof(SharedDkv<128>), a.G, a, stream);
  else
    return false;
  return true;
}

}  // namespace annulus::cuda
