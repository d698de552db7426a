// Attention backward for Hopper, deterministic: 10 * H * D flop a visible pair, on warpgroup matmul.
//
//   grid   one block a tile of 128 keys of one key/value head, keys ascending
//   each   warpgroup 0: one thread copies K and V once and tiles of Q and dO through two stages, one warp
//   fetches
//          lse and delta, one thread adds finished tiles of dQ to memory; warpgroups 1 and 2 hold 64 keys
//          each: S' = K Q', dP' = V dO', dV += P' dO, dK += dS' Q, and half of dQ' = K' dS'
//   dQ     is summed in memory in the order of the key tiles: a counter a query tile says whose turn it is. A
//          block waits only for blocks before it in the grid, so it can always be served
//   needs  sm_90a, bf16, D = 64 or 128; f32 dQ, rows of all tensors 16-byte aligned
//   source Dao 2023, alg. 2; Shah et al. 2024, section B.1; checked against src/ops/cpu
#include "attention/hopper.cuh"
#include "attention/hopper.h"
#include "attention/hopper_map.h"
#include "core/check.cuh"

namespace annulus::cuda {
namespace {

using namespace hopper;

constexpr int kN = 128;  // keys of a tile
template <int D>
constexpr int kTile = D == 128 ? 80 : 128;  // queries of a tile: registers are full with these
constexpr int kStages = 2;
constexpr int kThreads = 384;
constexpr float kLog2e = 1.4426950408889634f;
constexpr int kStatsRead = 2;  // barriers among warps, one a stage: lse, delta and low may be written again

struct BwdArgs {
  const int64_t* first;      // (q_count) row positions
  const float *lse, *delta;  // row h of (H, Tq), this block's first query
  float *dk, *dv;            // (k_count, G, D) f32, += ; null when the bf16 ones are written
  __nv_bfloat16 *dk16, *dv16;
  int* turns;  // (H, tiles of queries), zero at the start
  int64_t stat_stride, dk_stride;
  int64_t q_position, k_position;
  int q_count, k_count;
  int H, G;
  float scale, scale_log2;
};

template <int D>
struct __align__(1024) BwdShared {
  static constexpr int kM = kTile<D>, kPanels = D / 64;
  __nv_bfloat16 k[kPanels][kN * 64], v[kPanels][kN * 64];  // panels of 64 columns
  __nv_bfloat16 q[kStages][kPanels][kM * 64], d_o[kStages][kPanels][kM * 64];
  __nv_bfloat16 ds[2][2][kM * 64];             // dS (queries, keys): panels of 64 keys, two buffers
  float dq[D / 32][kM * 32];                   // dQ (queries, D): panels of 32 columns
  float lse[kStages][kM], delta[kStages][kM];  // lse in powers of two; +inf where nothing is visible
  int q0[kStages];                             // the tile's first query
  int low[kStages][kM];                        // first visible key of each query
  uint64_t kv_full, q_full[kStages], q_empty[kStages], do_full[kStages], do_empty[kStages], dq_full, dq_empty;
};

/// The same number, which the compiler cannot recognise: what is computed from it is computed here, not kept
/// in registers over the loop.
__device__ __forceinline__ int here_again(int v) {
  asm volatile("" : "+r"(v));
  return v;
}

/// Keys [low, high) that a query sees, in the block.
__device__ __forceinline__ int low_key(const BwdArgs& a, int q) {
  const int64_t v = a.first[q] - a.k_position;
  return int(v < 0 ? 0 : (v > a.k_count ? a.k_count : v));
}
__device__ __forceinline__ int high_key(const BwdArgs& a, int q) {
  const int64_t v = a.q_position + q + 1 - a.k_position;
  return int(v < 0 ? 0 : (v > a.k_count ? a.k_count : v));
}

/// Query tiles [begin, end) that see some key of a tile. Both bounds of a query's keys grow with it, so that
/// a tile of queries sees one interval: from its first query's low to its last one's high.
template <int kM>
__device__ int2 query_tiles(const BwdArgs& a, int key_begin, int key_end) {
  const int tiles = (a.q_count + kM - 1) / kM;
  int lo = 0, hi = tiles;  // first tile whose last query sees beyond key_begin
  while (lo < hi) {
    const int mid = (lo + hi) / 2;
    if (high_key(a, min(mid * kM + kM, a.q_count) - 1) > key_begin)
      hi = mid;
    else
      lo = mid + 1;
  }
  const int begin = lo;
  hi = tiles;  // first tile whose first query begins at or beyond key_end
  while (lo < hi) {
    const int mid = (lo + hi) / 2;
    if (low_key(a, mid * kM) >= key_end)
      hi = mid;
    else
      lo = mid + 1;
  }
  return {begin, lo};
}

template <int D>
__global__ void __launch_bounds__(kThreads, 1)
    hopper_bwd_kernel(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap do_map,
                      const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
                      const __grid_constant__ CUtensorMap dq_map, const BwdArgs a) {
  using Shared = BwdShared<D>;
  constexpr int kM = Shared::kM, kPanels = Shared::kPanels;
  constexpr int kS = kM / 2;        // accumulators a thread of a (64, kM) tile
  constexpr int kChunks = kM / 16;  // steps of 16 queries
  extern __shared__ __align__(1024) char raw[];
  Shared& sh = *reinterpret_cast<Shared*>(raw);

  const int key_tiles = (a.k_count + kN - 1) / kN;
  const int n = blockIdx.x % key_tiles, kv_head = blockIdx.x / key_tiles;
  const int key_begin = n * kN, key_end = min(key_begin + kN, a.k_count);
  const int heads = a.H / a.G;
  const int2 tiles = query_tiles<kM>(a, key_begin, key_end);
  const int steps = max(tiles.y - tiles.x, 0) * heads;
  // Step t: tiles from the last to the first, all heads of the group within a tile. Under a sliding window
  // each key tile begins a little after the one before it: there head by head, so that neighbours come to the
  // same tile soon after each other, while it is still in L2.
  const int count = tiles.y - tiles.x;
  const bool sliding = tiles.y * kM < a.q_count && low_key(a, tiles.y * kM) < key_end + kN;
  const auto tile_of = [&](int t) { return tiles.y - 1 - (sliding ? t % count : t / heads); };
  const auto head_of = [&](int t) { return kv_head * heads + (sliding ? t / count : t % heads); };
  const int group = threadIdx.x / 128, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;

  if (threadIdx.x == 0) {
    barrier_init(&sh.kv_full, 1);
    for (int s = 0; s < kStages; ++s) {
      barrier_init(&sh.q_full[s], 33);  // the copy, and each lane that fetches lse, delta, low
      barrier_init(&sh.do_full[s], 1);
      barrier_init(&sh.q_empty[s], 8);  // computing warps
      barrier_init(&sh.do_empty[s], 8);
    }
    barrier_init(&sh.dq_full, 8);
    barrier_init(&sh.dq_empty, 1);
    fence_barrier_init();
  }
  __syncthreads();

  if (group == 0) {
    registers_down<24>();
    if (warp == 0 && lane == 0 && steps > 0) {
      barrier_expect(&sh.kv_full, 2 * kN * D * 2);
      for (int p = 0; p < kPanels; ++p) {
        copy_box(&k_map, &sh.kv_full, sh.k[p], p * 64, kv_head, key_begin);
        copy_box(&v_map, &sh.kv_full, sh.v[p], p * 64, kv_head, key_begin);
      }
      for (int t = 0; t < steps; ++t) {
        const int s = t % kStages, q0 = tile_of(t) * kM, head = head_of(t);
        const uint32_t parity = (t / kStages + 1) & 1;
        barrier_wait(&sh.q_empty[s], parity);
        barrier_expect(&sh.q_full[s], kM * D * 2);
        for (int p = 0; p < kPanels; ++p) copy_box(&q_map, &sh.q_full[s], sh.q[s][p], p * 64, head, q0);
        barrier_wait(&sh.do_empty[s], parity);
        barrier_expect(&sh.do_full[s], kM * D * 2);
        for (int p = 0; p < kPanels; ++p) copy_box(&do_map, &sh.do_full[s], sh.d_o[s][p], p * 64, head, q0);
      }
    } else if (warp == 1) {
      for (int t = 0; t < steps + kStages; ++t) {
        const int s = t % kStages;
        if (t >= kStages)
          named_sync(kStatsRead + s, 256 + 32);  // the computing warps have read step t - kStages
        if (t >= steps) continue;
        const int q0 = tile_of(t) * kM;
        if (lane == 0) sh.q0[s] = q0;
        const int64_t row = head_of(t) * a.stat_stride;
        for (int i = lane; i < kM; i += 32) {
          const int q = q0 + i;
          const bool inside = q < a.q_count;
          const float lse = inside ? a.lse[row + q] : -INFINITY;
          sh.lse[s][i] = lse == -INFINITY ? INFINITY : lse * kLog2e;
          sh.delta[s][i] = inside ? a.delta[row + q] : 0.f;
          sh.low[s][i] = inside ? low_key(a, q) : a.k_count;
        }
        barrier_arrive(&sh.q_full[s]);
      }
    } else if (warp == 2 && lane == 0) {
      const int query_tiles_all = (a.q_count + kM - 1) / kM;
      for (int t = 0; t < steps; ++t) {
        const int m = tile_of(t), head = head_of(t);
        int* turn = a.turns + int64_t(head) * query_tiles_all + m;
        const int mine = n - low_key(a, m * kM) / kN;  // key tiles before this one that see the tile
        barrier_wait(&sh.dq_full, t & 1);
        int now;
        do {
          asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
        } while (now != mine);
        for (int p = 0; p < D / 32; ++p) add_box(&dq_map, sh.dq[p], p * 32, head, m * kM);
        bulk_commit();
        bulk_wait_read();
        barrier_arrive(&sh.dq_empty);
        bulk_wait();
        __threadfence();
        asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(turn), "r"(mine + 1) : "memory");
      }
    }
    return;
  }

  registers_up<240>();
  const int wg = group - 1;
  const int key_row =
      wg * 64 + warp * 16 + lane / 4;  // this thread's keys in the tile: key_row and key_row + 8
  const int column = lane % 4 * 2;     // its first query in each group of eight

  float dk[D / 2], dv[D / 2];
#pragma unroll
  for (int i = 0; i < D / 2; ++i) dk[i] = dv[i] = 0.f;

  const uint32_t k_at = shared_address(sh.k[0]), v_at = shared_address(sh.v[0]);
  // Of dQ' a warpgroup computes 64 columns of D for all queries, or where D has no more, half of the queries.
  constexpr int kDq = D == 128 ? kM : kM / 2;
  const int d_panel = D == 128 ? wg : 0, q_half = D == 128 ? 0 : wg * kDq;
  constexpr uint32_t kKeyPanel = kN * 128, kQueryPanel = kM * 128;
  // (64 keys, kM queries) = rows of K or V times a tile of Q or dO.
  const auto multiply_transposed = [&](float(&d)[kS], uint32_t keys, uint32_t queries) {
    wgmma_fence();
#pragma unroll
    for (int p = 0; p < kPanels; ++p)
#pragma unroll
      for (int c = 0; c < 4; ++c)
        wgmma_ss(d, tile_descriptor(keys + p * kKeyPanel + wg * 64 * 128 + c * 32, 0, 1024),
                 tile_descriptor(queries + p * kQueryPanel + c * 32, 0, 1024), p + c > 0);
    wgmma_commit();
  };
  // (64 keys, D) += P' or dS' (registers) times a tile of dO or Q.
  const auto accumulate = [&](float(&d)[D / 2], const uint32_t(&x)[kChunks][4], uint32_t queries) {
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      wgmma_rs(d, x[c], tile_descriptor(queries + c * 16 * 128, kQueryPanel, 1024), true);
    wgmma_commit();
  };
  const auto release = [&](uint64_t* bar) {
    __syncwarp();
    if (lane == 0) barrier_arrive(bar);
  };

  if (steps > 0) barrier_wait(&sh.kv_full, 0);
#pragma unroll 1
  for (int t = 0; t < steps; ++t) {
    const int s = t % kStages;
    const uint32_t parity = (t / kStages) & 1;
    float st[kS], dp[kS];
    uint32_t p[kChunks][4], ds[kChunks][4];
    barrier_wait(&sh.q_full[s], parity);
    multiply_transposed(st, k_at, shared_address(sh.q[s][0]));
    barrier_wait(&sh.do_full[s], parity);
    multiply_transposed(dp, v_at, shared_address(sh.d_o[s][0]));
    wgmma_wait<1>();
    wgmma_hold(st);

#pragma unroll
    for (int j = 0; j < kM / 8; ++j) {
      const float2 lse = *reinterpret_cast<const float2*>(&sh.lse[s][8 * j + column]);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        st[4 * j + e] = exp2_fast(fmaf(st[4 * j + e], a.scale_log2, -(e % 2 ? lse.y : lse.x)));
    }
    const int q0 = sh.q0[s];
    // Masked only where the tile's last query begins inside or its first one ends inside.
    const int q_last = min(q0 + kM, a.q_count) - 1;
    if (sh.low[s][q_last - q0] > key_begin || high_key(a, q0) < key_begin + kN) {
      const int diagonal = int(a.q_position - a.k_position) + q0;
#pragma unroll
      for (int i = 0; i < kS; ++i) {
        const int q = i / 4 * 8 + column + i % 2, key = key_begin + key_row + i / 2 % 2 * 8;
        if (key < sh.low[s][q] || key > diagonal + q || key >= a.k_count) st[i] = 0.f;
      }
    }
    wgmma_wait<0>();
    wgmma_hold(dp);
    // P and dS in bf16, chunk by chunk, so that the f32 ones end early: registers are what this kernel is
    // short of.
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int j = 2 * c + h;
        const float2 delta = *reinterpret_cast<const float2*>(&sh.delta[s][8 * j + column]);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float x = st[4 * j + 2 * r], y = st[4 * j + 2 * r + 1];
          p[c][2 * h + r] = pack(x, y);
          ds[c][2 * h + r] = pack(x * (dp[4 * j + 2 * r] - delta.x), y * (dp[4 * j + 2 * r + 1] - delta.y));
        }
      }
    named_arrive(kStatsRead + s, 256 + 32);
    accumulate(dv, p, shared_address(sh.d_o[s][0]));

    // dS (queries, keys) to shared memory for the other warpgroup too. Two buffers: nobody writes one before
    // both have passed the next tile's meeting, that is, finished reading it.
    const uint32_t ds_at = shared_address(sh.ds[t % 2][0]);
    const int here = here_again(lane);
    const uint32_t ds_mine = ds_at + wg * kQueryPanel + (here / 16 * 8 + here % 8) * 128 +
                             (((warp * 2 + here / 8 % 2) ^ (here % 8)) * 16);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) store_transposed(ds_mine + c * 16 * 128, ds[c]);
    fence_shared_async();
    named_sync(1, 256);

    // Waiting here for dV, which has run meanwhile, frees the registers of P: with them in flight beside dQ
    // and dK the assembler would serialise all products of the loop.
    wgmma_wait<0>();
    wgmma_hold(dv);
    release(&sh.do_empty[s]);
    float dq[kDq / 2];  // dQ' (64 of D, kDq queries)
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < kN / 16; ++c)
      wgmma_ss<1>(dq, tile_descriptor(k_at + d_panel * kKeyPanel + c * 16 * 128, kKeyPanel, 1024),
                  tile_descriptor(ds_at + c / 4 * kQueryPanel + q_half * 128 + c % 4 * 32, 0, 1024), c > 0);
    wgmma_commit();
    accumulate(dk, ds, shared_address(sh.q[s][0]));
    wgmma_wait<1>();
    wgmma_hold(dq);

    barrier_wait(&sh.dq_empty, (t + 1) & 1);
#pragma unroll
    for (int e = 0; e < 2; ++e)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int at = here_again(lane);
        const int q = at % 4 * 2 + e, d = warp % 2 * 16 + at / 4 + r * 8;  // of a group of 8 queries, a panel
        float* to = &sh.dq[d_panel * 2 + warp / 2][(q_half + q) * 32 + ((d / 4) ^ q) * 4 + d % 4];
#pragma unroll
        for (int j = 0; j < kDq / 8; ++j) to[j * 8 * 32] = dq[4 * j + 2 * r + e] * a.scale;
      }
    fence_shared_async();
    release(&sh.dq_full);
    wgmma_wait<0>();
    wgmma_hold(dk);
    release(&sh.q_empty[s]);
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int key = key_begin + key_row + 8 * r;
    if (key >= a.k_count) continue;
    const int64_t at = key * a.dk_stride + int64_t(kv_head) * D + column;
#pragma unroll
    for (int j = 0; j < D / 8; ++j) {
      const float kx = dk[4 * j + 2 * r] * a.scale, ky = dk[4 * j + 2 * r + 1] * a.scale;
      const float vx = dv[4 * j + 2 * r], vy = dv[4 * j + 2 * r + 1];
      if (a.dk16 != nullptr) {
        *reinterpret_cast<uint32_t*>(a.dk16 + at + 8 * j) = pack(kx, ky);
        *reinterpret_cast<uint32_t*>(a.dv16 + at + 8 * j) = pack(vx, vy);
      } else {
        float2* to_k = reinterpret_cast<float2*>(a.dk + at + 8 * j);
        float2* to_v = reinterpret_cast<float2*>(a.dv + at + 8 * j);
        const float2 k_was = *to_k, v_was = *to_v;
        *to_k = float2{k_was.x + kx, k_was.y + ky};
        *to_v = float2{v_was.x + vx, v_was.y + vy};
      }
    }
  }
}

template <int D>
void launch(const AttentionBwd& x, const AttentionBlock& b, const Tensor& dq, int* turns,
            cudaStream_t stream) {
  const int64_t H = x.q.shape[1], G = x.k.shape[1];
  BwdArgs a{};
  a.first = x.first.as<int64_t>() + b.q_at;
  a.lse = x.lse.as<float>() + b.q_at;
  a.delta = x.delta.as<float>() + b.q_at;
  a.stat_stride = x.lse.stride();
  a.dk_stride = x.dk.stride();
  const int64_t keys_at = b.k_at * x.dk.stride();
  if (x.dk.dtype == DType::bf16) {
    a.dk16 = reinterpret_cast<__nv_bfloat16*>(x.dk.as<bf16>()) + keys_at;
    a.dv16 = reinterpret_cast<__nv_bfloat16*>(x.dv.as<bf16>()) + keys_at;
  } else {
    a.dk = x.dk.as<float>() + keys_at;
    a.dv = x.dv.as<float>() + keys_at;
  }
  a.turns = turns;
  a.q_position = b.q_position;
  a.k_position = b.k_position;
  a.q_count = int(b.q_count);
  a.k_count = int(b.k_count);
  a.H = int(H);
  a.G = int(G);
  a.scale = float(x.scale);
  a.scale_log2 = float(x.scale) * kLog2e;
  const auto rows = [](const Tensor& t, int64_t at) { return t.as<bf16>() + at * t.stride(); };
  const CUtensorMap q_map = make_head_map(rows(x.q, b.q_at), b.q_count, H, D, x.q.stride(), kTile<D>);
  const CUtensorMap do_map = make_head_map(rows(x.d_o, b.q_at), b.q_count, H, D, x.d_o.stride(), kTile<D>);
  const CUtensorMap k_map = make_head_map(rows(x.k, b.k_at), b.k_count, G, D, x.k.stride(), kN);
  const CUtensorMap v_map = make_head_map(rows(x.v, b.k_at), b.k_count, G, D, x.v.stride(), kN);
  const CUtensorMap dq_map =
      make_sum_map(dq.as<float>() + b.q_at * dq.stride(), b.q_count, H, D, dq.stride(), kTile<D>);
  constexpr int bytes = int(sizeof(BwdShared<D>));
  static_assert(bytes <= 227 * 1024, "shared memory of a block");
  auto* kernel = hopper_bwd_kernel<D>;
  cu(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
     "shared memory of hopper_bwd");
  const int64_t tiles = (b.q_count + kTile<D> - 1) / kTile<D>;
  cu(cudaMemsetAsync(turns, 0, static_cast<std::size_t>(tiles * H) * sizeof(int), stream),
     "turns of hopper_bwd");
  const int64_t blocks = (b.k_count + kN - 1) / kN * G;
  kernel<<<unsigned(blocks), kThreads, bytes, stream>>>(q_map, do_map, k_map, v_map, dq_map, a);
  launched("hopper_bwd_kernel");
}

}  // namespace

int64_t hopper_bwd_turn_bytes(int64_t queries, int64_t H, int64_t D) {
  const int64_t tile = D == 128 ? kTile<128> : kTile<64>;
  return (queries + tile - 1) / tile * H * int64_t(sizeof(int));
}

void launch_hopper_bwd(const AttentionBwd& x, const AttentionBlock& b, const Tensor& dq, int* turns,
                       cudaStream_t stream) {
  const int64_t D = x.q.shape[2];
  need(D == 64 || D == 128, "hopper attention backward: D must be 64 or 128");
  if (b.q_count == 0 || b.k_count == 0) return;
  if (D == 64)
    launch<64>(x, b, dq, turns, stream);
  else
    launch<128>(x, b, dq, turns, stream);
}

}  // namespace annulus::cuda
