// Attention forward for Hopper: 4 * H * D flop a visible pair, on warpgroup matmul.
//
//   grid   one block a tile of 128 queries of one head; heads that share keys are neighbours, longest tiles
//   first each   three warpgroups: one warp of the first copies tiles of K and V through two stages of shared
//   memory,
//          the others hold 64 queries each: S = Q K' from shared memory, P in registers, O = P V
//   order  the next S is issued before this P V; the two warpgroups take turns at the tensor cores, so that
//   one
//          computes its softmax while the other multiplies
//   carry  O, max and sum start from the running (acc, lse), so that a ring step needs no merge
//   needs  sm_90a, bf16, D = 64 or 128; positions within a block fit 31 bits, offsets are 64-bit
//   source Dao et al. 2022, alg. 1; Shah et al. 2024, sections 3.1 and 3.2; checked against src/ops/cpu
#include <cfloat>
#include "attention/hopper.cuh"
#include "attention/hopper.h"
#include "attention/hopper_map.h"
#include "core/check.cuh"

namespace annulus::cuda {
namespace {

using namespace hopper;

constexpr int kQ = 128;  // queries of a tile
constexpr int kStages = 2;
constexpr int kThreads = 384;
constexpr float kLog2e = 1.4426950408889634f;
// The running maximum is raised, and O rescaled, only when it grows by more than this (in powers of two).
constexpr float kLag = 8.f;

struct FwdArgs {
  const int64_t* first;  // (q_count) row positions
  float* acc;            // (q_count, H, D) of this block's rows, row stride H * D
  float* lse;            // row h of (H, Tq), this block's first query
  __nv_bfloat16* o;
  int64_t lse_stride, o_stride;
  int64_t q_position, k_position;
  int q_count, k_count;
  int H, group;  // query heads, query heads a key head
  float scale_log2;
  bool fresh, last;
};

template <int D, int kN>
struct __align__(1024) FwdShared {
  static constexpr int kPanels = D / 64;
  __nv_bfloat16 q[kPanels][kQ * 64];
  __nv_bfloat16 k[kStages][kPanels][kN * 64];
  __nv_bfloat16 v[kStages][kPanels][kN * 64];
  uint64_t q_full, k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
};

__device__ __forceinline__ float quad_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
  return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
__device__ __forceinline__ float quad_sum(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

/// The keys of a query tile: tiles [begin, end) of kN keys; those in [full_begin, full_end) need no mask.
struct KeyRange {
  int begin, end, full_begin, full_end;
};

template <int kN>
__device__ KeyRange key_range(const FwdArgs& a, int q0) {
  const int q1 = min(q0 + kQ, a.q_count) - 1;
  const auto clamp = [&](int64_t v) { return int(v < 0 ? 0 : (v > a.k_count ? a.k_count : v)); };
  const int low = clamp(a.first[q0] - a.k_position), high = clamp(a.q_position + q1 + 1 - a.k_position);
  const int low_all = clamp(a.first[q1] - a.k_position),
            high_all = clamp(a.q_position + q0 + 1 - a.k_position);
  KeyRange r;
  r.begin = low / kN;
  r.end = high > low ? (high + kN - 1) / kN : r.begin;
  r.full_begin = (low_all + kN - 1) / kN;
  r.full_end = high_all / kN;
  return r;
}

template <int D, int kN>
__global__ void __launch_bounds__(kThreads, 1)
    hopper_fwd_kernel(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                      const __grid_constant__ CUtensorMap v_map, const FwdArgs a) {
  using Shared = FwdShared<D, kN>;
  constexpr int kPanels = Shared::kPanels;
  constexpr int kS = kN / 2, kO = D / 2;  // accumulators a thread
  extern __shared__ __align__(1024) char raw[];
  Shared& sh = *reinterpret_cast<Shared*>(raw);

  // Longest tiles first: the last queries of a causal block see most keys.
  const int tiles = (a.q_count + kQ - 1) / kQ;
  const int in_group = blockIdx.x % a.group, rest = blockIdx.x / a.group;
  const int tile = tiles - 1 - rest % tiles, kv_head = rest / tiles;
  const int head = kv_head * a.group + in_group, q0 = tile * kQ;
  const KeyRange keys = key_range<kN>(a, q0);
  const int group = threadIdx.x / 128;  // warpgroup: 0 copies, 1 and 2 compute

  if (threadIdx.x == 0) {
    prefetch_map(&q_map);
    prefetch_map(&k_map);
    prefetch_map(&v_map);
    barrier_init(&sh.q_full, 1);
    for (int s = 0; s < kStages; ++s) {
      barrier_init(&sh.k_full[s], 1);
      barrier_init(&sh.v_full[s], 1);
      barrier_init(&sh.k_empty[s], 8);  // one arrival a computing warp
      barrier_init(&sh.v_empty[s], 8);
    }
    fence_barrier_init();
  }
  __syncthreads();

  if (group == 0) {
    registers_down<24>();
    if (threadIdx.x == 0 && keys.end > keys.begin) {
      barrier_expect(&sh.q_full, kQ * D * 2);
      for (int p = 0; p < kPanels; ++p) copy_box(&q_map, &sh.q_full, sh.q[p], p * 64, head, q0);
      for (int n = keys.end - 1, i = 0; n >= keys.begin; --n, ++i) {
        const int s = i % kStages;
        const uint32_t parity = (i / kStages + 1) & 1;  // the first round finds the stages empty
        barrier_wait(&sh.k_empty[s], parity);
        barrier_expect(&sh.k_full[s], kN * D * 2);
        for (int p = 0; p < kPanels; ++p)
          copy_box(&k_map, &sh.k_full[s], sh.k[s][p], p * 64, kv_head, n * kN);
        barrier_wait(&sh.v_empty[s], parity);
        barrier_expect(&sh.v_full[s], kN * D * 2);
        for (int p = 0; p < kPanels; ++p)
          copy_box(&v_map, &sh.v_full[s], sh.v[s][p], p * 64, kv_head, n * kN);
      }
    }
    return;
  }

  registers_up<240>();
  const int wg = group - 1, thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
  const int row0 = q0 + wg * 64 + warp * 16 + lane / 4;  // this thread's rows: row0 and row0 + 8
  const int column = lane % 4 * 2;                       // its first column in each group of eight

  float o[kO];
  float top[2], sum[2];  // running maximum (times scale, log2) and this thread's part of the sum
  const int64_t acc_stride = int64_t(a.H) * D;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = row0 + 8 * r;
    const bool carried = !a.fresh && row < a.q_count;
    const float lse = carried ? a.lse[head * a.lse_stride + row] : -INFINITY;
    top[r] = lse * kLog2e;
    sum[r] = lse > -INFINITY && lane % 4 == 0 ? 1.f : 0.f;
    const float* from = a.acc + row * acc_stride + int64_t(head) * D + column;
#pragma unroll
    for (int j = 0; j < D / 8; ++j) {
      const float2 v = carried ? *reinterpret_cast<const float2*>(from + 8 * j) : float2{0.f, 0.f};
      o[4 * j + 2 * r] = v.x;
      o[4 * j + 2 * r + 1] = v.y;
    }
  }

  const uint32_t q_at = shared_address(sh.q[0]) + wg * 64 * 128;
  const auto multiply_qk = [&](float(&s)[kS], int stage) {
    const uint32_t k_at = shared_address(sh.k[stage][0]);
    wgmma_fence();
#pragma unroll
    for (int p = 0; p < kPanels; ++p)
#pragma unroll
      for (int c = 0; c < 4; ++c)
        wgmma_ss(s, tile_descriptor(q_at + p * kQ * 128 + c * 32, 0, 1024),
                 tile_descriptor(k_at + p * kN * 128 + c * 32, 0, 1024), p + c > 0);
    wgmma_commit();
  };
  const auto multiply_pv = [&](const uint32_t(&p)[kN / 16][4], int stage) {
    const uint32_t v_at = shared_address(sh.v[stage][0]);
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < kN / 16; ++c)
      wgmma_rs(o, p[c], tile_descriptor(v_at + c * 16 * 128, kN * 128, 1024), true);
    wgmma_commit();
  };

  int low[2], high[2];  // visible keys of the two rows: [low, high) in the block
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = min(row0 + 8 * r, a.q_count - 1);
    const int64_t l = a.first[row] - a.k_position, h = a.q_position + row + 1 - a.k_position;
    low[r] = int(l < 0 ? 0 : (l > a.k_count ? a.k_count : l));
    high[r] = int(h < 0 ? 0 : (h > a.k_count ? a.k_count : h));
  }
  const auto mask = [&](float(&s)[kS], int n) {
    if (n >= keys.full_begin && n < keys.full_end) return;
    const int base = n * kN + column;
#pragma unroll
    for (int i = 0; i < kS; ++i) {
      const int key = base + i / 4 * 8 + i % 2, r = i / 2 % 2;
      if (key < low[r] || key >= high[r]) s[i] = -INFINITY;
    }
  };
  // S becomes P in place; returns the factors by which O and the sums so far shrink.
  const auto softmax = [&](float(&s)[kS], float(&shrink)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float m = -INFINITY;
#pragma unroll
      for (int j = 0; j < kN / 8; ++j) m = fmaxf(m, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
      m = quad_max(m) * a.scale_log2;
      const bool raise = m > top[r] + kLag || top[r] == -INFINITY;
      const float now = raise ? fmaxf(m, top[r]) : top[r];
      shrink[r] = raise && top[r] > -INFINITY ? exp2_fast(top[r] - now) : 1.f;
      top[r] = now;
      const float offset = now == -INFINITY ? 0.f : now;
      float part = sum[r] * shrink[r];
#pragma unroll
      for (int j = 0; j < kN / 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[4 * j + 2 * r + e];
          x = exp2_fast(fmaf(x, a.scale_log2, -offset));
          part += x;
        }
      sum[r] = part;
    }
  };
  const auto to_bf16 = [&](const float(&s)[kS], uint32_t(&p)[kN / 16][4]) {
#pragma unroll
    for (int c = 0; c < kN / 16; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) p[c][e] = pack(s[8 * c + 2 * e], s[8 * c + 2 * e + 1]);
  };
  const auto rescale = [&](const float(&shrink)[2]) {
    if (!__any_sync(0xffffffffu, shrink[0] != 1.f || shrink[1] != 1.f)) return;
#pragma unroll
    for (int i = 0; i < kO; ++i) o[i] *= shrink[i / 2 % 2];
  };
  // One arrival a warp, once all its lanes have passed the wait before it.
  const auto release = [&](uint64_t* bar) {
    __syncwarp();
    if (lane == 0) barrier_arrive(bar);
  };

  const int count = keys.end - keys.begin;
  if (count > 0) {
    float s[kS], shrink[2];
    uint32_t p[kN / 16][4];
    // Turns at the tensor cores: the second warpgroup lets the first begin.
    if (wg == 1) named_arrive(1, 256);
    barrier_wait(&sh.q_full, 0);
    barrier_wait(&sh.k_full[0], 0);
    multiply_qk(s, 0);
    wgmma_wait<0>();
    wgmma_hold(s);
    release(&sh.k_empty[0]);
    mask(s, keys.end - 1);
    softmax(s, shrink);
    rescale(shrink);
    to_bf16(s, p);
#pragma unroll 1
    for (int i = 1; i < count; ++i) {
      const int stage = i % kStages, before = (i - 1) % kStages;
      barrier_wait(&sh.k_full[stage], (i / kStages) & 1);
      named_sync(1 + wg, 256);
      multiply_qk(s, stage);
      barrier_wait(&sh.v_full[before], ((i - 1) / kStages) & 1);
      multiply_pv(p, before);
      named_arrive(2 - wg, 256);
      wgmma_wait<1>();
      wgmma_hold(s);
      release(&sh.k_empty[stage]);
      mask(s, keys.end - 1 - i);
      softmax(s, shrink);
      wgmma_wait<0>();
      wgmma_hold(o);
      release(&sh.v_empty[before]);
      rescale(shrink);
      to_bf16(s, p);
    }
    const int before = (count - 1) % kStages;
    barrier_wait(&sh.v_full[before], ((count - 1) / kStages) & 1);
    multiply_pv(p, before);
    wgmma_wait<0>();
    wgmma_hold(o);
    if (wg == 0) named_sync(1, 256);  // takes the turn that is left over
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = quad_sum(sum[r]);
    const int row = row0 + 8 * r;
    if (row >= a.q_count) continue;
    const float inverse = total > 0.f ? 1.f / total : 0.f;
    if (lane % 4 == 0)
      a.lse[head * a.lse_stride + row] =
          total > 0.f ? (top[r] + log2f(total)) * 0.69314718055994531f : -INFINITY;
    float* to_acc = a.acc + row * acc_stride + int64_t(head) * D + column;
    __nv_bfloat16* to_o = a.o + row * a.o_stride + int64_t(head) * D + column;
#pragma unroll
    for (int j = 0; j < D / 8; ++j) {
      const float x = o[4 * j + 2 * r] * inverse, y = o[4 * j + 2 * r + 1] * inverse;
      if (a.last)
        *reinterpret_cast<uint32_t*>(to_o + 8 * j) = pack(x, y);
      else
        *reinterpret_cast<float2*>(to_acc + 8 * j) = float2{x, y};
    }
  }
}

template <int D, int kN>
void launch(const AttentionFwd& x, const AttentionBlock& b, bool fresh, bool last, cudaStream_t stream) {
  const int64_t H = x.q.shape[1], G = x.k.shape[1];
  FwdArgs a{};
  a.first = x.first.as<int64_t>() + b.q_at;
  a.acc = x.acc ? x.acc.as<float>() + b.q_at * H * D : nullptr;
  a.lse = x.lse.as<float>() + b.q_at;
  a.lse_stride = x.lse.stride();
  a.o = x.o ? reinterpret_cast<__nv_bfloat16*>(x.o.as<bf16>()) + b.q_at * x.o.stride() : nullptr;
  a.o_stride = x.o ? x.o.stride() : 0;
  a.q_position = b.q_position;
  a.k_position = b.k_position;
  a.q_count = int(b.q_count);
  a.k_count = int(b.k_count);
  a.H = int(H);
  a.group = int(H / G);
  a.scale_log2 = float(x.scale) * kLog2e;
  a.fresh = fresh;
  a.last = last;
  const auto rows = [](const Tensor& t, int64_t at) { return t.as<bf16>() + at * t.stride(); };
  const CUtensorMap q_map = make_head_map(rows(x.q, b.q_at), b.q_count, H, D, x.q.stride(), kQ);
  const CUtensorMap k_map = make_head_map(rows(x.k, b.k_at), b.k_count, G, D, x.k.stride(), kN);
  const CUtensorMap v_map = make_head_map(rows(x.v, b.k_at), b.k_count, G, D, x.v.stride(), kN);
  constexpr int bytes = int(sizeof(FwdShared<D, kN>));
  auto* kernel = hopper_fwd_kernel<D, kN>;
  cu(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
     "shared memory of hopper_fwd");
  const std::int64_t blocks = (b.q_count + kQ - 1) / kQ * H;
  kernel<<<unsigned(blocks), kThreads, bytes, stream>>>(q_map, k_map, v_map, a);
  launched("hopper_fwd_kernel");
}

}  // namespace

void launch_hopper_fwd(const AttentionFwd& x, const AttentionBlock& b, bool fresh, bool last,
                       cudaStream_t stream) {
  const int64_t D = x.q.shape[2];
  need(D == 64 || D == 128, "hopper attention: D must be 64 or 128");
  if (b.q_count == 0) return;
  if (D == 64)
    launch<64, 176>(x, b, fresh, last, stream);
  else if (b.cover == Cover::full)
    launch<128, 176>(x, b, fresh, last, stream);
  else
    launch<128, 128>(x, b, fresh, last, stream);
}

}  // namespace annulus::cuda
