// Per-head RMSNorm and rotary embedding of q and k; v is copied. Memory bound: 2*N*(H+2G)*D*sizeof(T) bytes
// forward; backward N*(H+2G)*D * (sizeof dq + 2*sizeof(T)).
//
//   grid   fwd: a block per token; bwd: at most kPartials blocks, block b walks the tokens b, b + blocks, ...
//   each   block computes cos and sin of a token's R angles once for all its heads; a group of 1 to 32 lanes
//          owns a head; a lane owns units of the head: W pairs (x[i..], x[i+R..]), or W dimensions that pass
//          through. bwd: gradients of the norm weights stay in the lane's registers over all tokens of the
//          block, meet in shared memory in a fixed order, are left as one partial row, and a second kernel
//          adds the partial rows up
//   needs  D <= 256; scratch of a few rows of 2*D floats (bwd with norm weights); offsets are 64-bit
//   source Su et al. 2021, eq. 34 (half-split as in Hugging Face); checked against src/ops/cpu
//
// Angles are position * inv_freq in double, brought to [-pi, pi] in double, and only then rounded to float:
// at position 4,000,000 a float product would be wrong by up to 0.12 rad.
#include "kernels/common.cuh"
#include "kernels/partials.h"
#include "kernels/qk_rope.h"

namespace annulus::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxD = 256;
constexpr std::int64_t kTokensAtLeast = 4;  // tokens a block of the backward

struct RopeArgs {
  const void* qkv;                // (N, H + 2G, D) in T
  const void *q_norm, *k_norm;    // (D) in T, may be null
  const std::int64_t* positions;  // (N)
  const double* inv_freq;         // (R)
  void *q, *kv;                   // (N, H, D), (2, N, G, D): out in T, or the gradients coming in
  void* dqkv;                     // (N, H + 2G, D) in T, may be qkv; backward only
  float* partial;                 // (gridDim.x, 2, D); backward with norm weights only
  std::int64_t N;
  int H, G, D, R, lanes;
  float factor, eps;
};

/// cos and sin of one angle, times the factor.
__device__ __forceinline__ float2 turn(std::int64_t position, double inv_freq, float factor) {
  constexpr double kTwoPi = 6.283185307179586;
  const double t = static_cast<double>(position) * inv_freq;
  const double reduced = fma(-kTwoPi, rint(t / kTwoPi), t);
  float s, c;
  sincosf(static_cast<float>(reduced), &s, &c);
  return make_float2(factor * c, factor * s);
}

/// Where unit u of a head lies: W pairs at d and d + R, or W single dimensions at d.
struct Unit {
  int d;
  bool pair, single;
};
template <int W>
__device__ __forceinline__ Unit unit_at(int u, const RopeArgs& a) {
  const int pairs = a.R / W;
  if (u < pairs) return {u * W, true, false};
  const int d = 2 * a.R + (u - pairs) * W;
  return {d, false, d < a.D};
}

/// The head's place among q, k and v: `slot` counts heads as they lie in qkv.
template <class T>
__device__ __forceinline__ T* head_of(const RopeArgs& a, std::int64_t n, int slot) {
  if (slot < a.H) return static_cast<T*>(a.q) + (n * a.H + slot) * a.D;
  const int g = slot - a.H;
  return static_cast<T*>(a.kv) + (g < a.G ? n * a.G + g : (a.N + n) * a.G + g - a.G) * a.D;
}

/// A lane's part of a head: K units, each of W dimensions and their W partners.
template <int W, int K>
struct Part {
  float x[K][W], y[K][W];
};

template <class T, int W, int K>
__device__ __forceinline__ void read(Part<W, K>& p, const T* head, const RopeArgs& a, int lane) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const Unit u = unit_at<W>(lane + k * a.lanes, a);
#pragma unroll
    for (int w = 0; w < W; ++w) p.x[k][w] = p.y[k][w] = 0.f;
    if (u.pair || u.single) load(p.x[k], head + u.d);
    if (u.pair) load(p.y[k], head + u.d + a.R);
  }
}

template <class T, int W, int K>
__device__ __forceinline__ void write(const Part<W, K>& p, T* head, const RopeArgs& a, int lane) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const Unit u = unit_at<W>(lane + k * a.lanes, a);
    if (u.pair || u.single) store(head + u.d, p.x[k]);
    if (u.pair) store(head + u.d + a.R, p.y[k]);
  }
}

template <int W, int K>
__device__ __forceinline__ void rotate(Part<W, K>& p, const float2* angles, const RopeArgs& a, int lane,
                                       float sign) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const Unit u = unit_at<W>(lane + k * a.lanes, a);
    if (!u.pair) continue;
#pragma unroll
    for (int w = 0; w < W; ++w) {
      const float2 t = angles[u.d + w];
      const float x = p.x[k][w], y = p.y[k][w], s = sign * t.y;
      p.x[k][w] = x * t.x - y * s;
      p.y[k][w] = y * t.x + x * s;
    }
  }
}

/// sum over the head of a * b; all lanes of the warp take part.
template <int W, int K>
__device__ __forceinline__ float dot(const Part<W, K>& a, const Part<W, K>& b, int lanes) {
  float sum = 0.f;
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int w = 0; w < W; ++w) sum += a.x[k][w] * b.x[k][w] + a.y[k][w] * b.y[k][w];
  return lane_sum(sum, lanes);
}

template <class T, int W, int K>
__global__ void __launch_bounds__(kThreads) qk_rope_fwd_kernel(RopeArgs a) {
  __shared__ float2 angles[2][kMaxD / 2];
  const int lane = static_cast<int>(threadIdx.x) % a.lanes, group = static_cast<int>(threadIdx.x) / a.lanes;
  const int groups = kThreads / a.lanes, slots = a.H + 2 * a.G;
  int turn_at = 0;
  for (std::int64_t n = blockIdx.x; n < a.N; n += gridDim.x, turn_at ^= 1) {
    const T* in = static_cast<const T*>(a.qkv) + n * slots * a.D;
    Part<W, K> p;
    if (group < slots) read(p, in + group * a.D, a, lane);  // on its way while the angles are computed
    const int i = static_cast<int>(threadIdx.x);
    if (i < a.R) angles[turn_at][i] = turn(a.positions[n], a.inv_freq[i], a.factor);
    __syncthreads();
    for (int first = 0; first < slots; first += groups) {  // all lanes stay, for the shuffles
      const int slot = first + group;
      const bool mine = slot < slots;
      if (first > 0 && mine) read(p, in + slot * a.D, a, lane);
      const T* norm = static_cast<const T*>(slot < a.H ? a.q_norm : slot < a.H + a.G ? a.k_norm : nullptr);
      if (a.q_norm != nullptr || a.k_norm != nullptr) {
        const float mean = dot(p, p, a.lanes) / static_cast<float>(a.D);
        if (norm != nullptr) {
          const float r = 1.f / sqrtf(mean + a.eps);
          Part<W, K> weight;
          read(weight, norm, a, lane);
#pragma unroll
          for (int k = 0; k < K; ++k)
#pragma unroll
            for (int w = 0; w < W; ++w) p.x[k][w] *= r * weight.x[k][w], p.y[k][w] *= r * weight.y[k][w];
        }
      }
      if (slot < a.H + a.G) rotate(p, angles[turn_at], a, lane, 1.f);
      if (mine) write(p, head_of<T>(a, n, slot), a, lane);
    }
  }
}

/// dy (of w * x * rstd) becomes dx; the lane's part of dw grows. All lanes of the warp take part; `norm` may
/// be null.
template <class T, int W, int K>
__device__ __forceinline__ void norm_back(Part<W, K>& dy, const Part<W, K>& x, const T* norm, Part<W, K>& dw,
                                          const RopeArgs& a, int lane) {
  const float r = 1.f / sqrtf(dot(x, x, a.lanes) / static_cast<float>(a.D) + a.eps);
  Part<W, K> gradient = dy;
  if (norm != nullptr) {
    Part<W, K> weight;
    read(weight, norm, a, lane);
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int w = 0; w < W; ++w) {
        dw.x[k][w] += dy.x[k][w] * x.x[k][w] * r;
        dw.y[k][w] += dy.y[k][w] * x.y[k][w] * r;
        gradient.x[k][w] *= weight.x[k][w];
        gradient.y[k][w] *= weight.y[k][w];
      }
  }
  const float back = dot(gradient, x, a.lanes) / static_cast<float>(a.D) * r * r;
  if (norm == nullptr) return;
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int w = 0; w < W; ++w) {
      dy.x[k][w] = r * (gradient.x[k][w] - x.x[k][w] * back);
      dy.y[k][w] = r * (gradient.y[k][w] - x.y[k][w] * back);
    }
}

/// The groups' sums of one norm weight's gradient, added in order of the group.
template <int W, int K>
__device__ void leave(const Part<W, K>& dw, float* shared, float* out, const RopeArgs& a, int lane,
                      int group) {
  __syncthreads();
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const Unit u = unit_at<W>(lane + k * a.lanes, a);
#pragma unroll
    for (int w = 0; w < W; ++w) {
      if (u.pair || u.single) shared[group * a.D + u.d + w] = dw.x[k][w];
      if (u.pair) shared[group * a.D + u.d + a.R + w] = dw.y[k][w];
    }
  }
  __syncthreads();
  for (int d = static_cast<int>(threadIdx.x); d < a.D; d += kThreads) {
    float sum = 0.f;
    for (int g = 0; g < kThreads / a.lanes; ++g) sum += shared[g * a.D + d];
    out[d] = sum;
  }
}

template <class T, class U, int W, int K, bool Norm>  // U: type of dq and dkv
__global__ void __launch_bounds__(kThreads) qk_rope_bwd_kernel(RopeArgs a) {
  __shared__ float2 angles[2][kMaxD / 2];
  extern __shared__ float shared[];  // (groups, D)
  const int lane = static_cast<int>(threadIdx.x) % a.lanes, group = static_cast<int>(threadIdx.x) / a.lanes;
  const int groups = kThreads / a.lanes, slots = a.H + 2 * a.G;
  Part<W, K> dq_norm{}, dk_norm{};
  int turn_at = 0;
  for (std::int64_t n = blockIdx.x; n < a.N; n += gridDim.x, turn_at ^= 1) {
    const int i = static_cast<int>(threadIdx.x);
    if (i < a.R) angles[turn_at][i] = turn(a.positions[n], a.inv_freq[i], a.factor);
    __syncthreads();
    for (int first = 0; first < slots; first += groups) {
      const int slot = first + group;
      const bool mine = slot < slots;
      const std::int64_t at = (n * slots + (mine ? slot : 0)) * a.D;
      Part<W, K> dy{};
      if (mine) read(dy, head_of<const U>(a, n, slot), a, lane);
      if (slot < a.H + a.G) rotate(dy, angles[turn_at], a, lane, -1.f);
      if constexpr (Norm) {
        Part<W, K> x{};
        if (mine && slot < a.H + a.G) read(x, static_cast<const T*>(a.qkv) + at, a, lane);
        const T* norm = static_cast<const T*>(slot < a.H ? a.q_norm : slot < a.H + a.G ? a.k_norm : nullptr);
        Part<W, K> dw{};
        norm_back(dy, x, norm, dw, a, lane);
#pragma unroll
        for (int k = 0; k < K; ++k)
#pragma unroll
          for (int w = 0; w < W; ++w) {
            dq_norm.x[k][w] += slot < a.H ? dw.x[k][w] : 0.f;
            dq_norm.y[k][w] += slot < a.H ? dw.y[k][w] : 0.f;
            dk_norm.x[k][w] += slot < a.H ? 0.f : dw.x[k][w];
            dk_norm.y[k][w] += slot < a.H ? 0.f : dw.y[k][w];
          }
      }
      if (mine) write(dy, static_cast<T*>(a.dqkv) + at, a, lane);
    }
  }
  if (Norm && a.partial != nullptr) {
    float* out = a.partial + std::int64_t{blockIdx.x} * 2 * a.D;
    leave(dq_norm, shared, out, a, lane, group);
    leave(dk_norm, shared, out + a.D, a, lane, group);
  }
}

/// Lanes a head so that each has at most `units` units of W; 0 when a warp is too small.
int lanes_for(const RopeArgs& a, int W, int units) {
  const auto needed = ceil_div(a.R / W + (a.D - 2 * a.R) / W, units);
  int lanes = 1;
  while (lanes < needed) lanes *= 2;
  return lanes <= 32 ? lanes : 0;
}

/// Whether heads can be taken W elements at a time, in both halves of the rotation.
bool wide_heads(const RopeArgs& a, int W, std::initializer_list<const Tensor*> tensors) {
  bool wide = a.D % W == 0 && a.R % W == 0 && lanes_for(a, W, 1) > 0;
  for (const Tensor* t : tensors) wide = wide && wide_vector(*t, W);
  return wide;
}

constexpr int kUnits = kMaxD / 32;  // scalar path: units a lane at most

template <class T>
void qk_rope_fwd(const QkRopeFwd& op, RopeArgs a, cudaStream_t stream) {
  constexpr int W = kWide<T>;
  const bool wide = wide_heads(a, W, {&op.qkv, &op.q_norm, &op.k_norm, &op.q, &op.kv});
  a.lanes = wide ? lanes_for(a, W, 1) : 32;
  const auto kernel = wide ? qk_rope_fwd_kernel<T, W, 1> : qk_rope_fwd_kernel<T, 1, kUnits>;
  kernel<<<grid_for(a.N), kThreads, 0, stream>>>(a);
  launched("qk_rope_fwd_kernel");
}

template <class T, class U, bool Norm>
void qk_rope_bwd(const QkRopeBwd& op, RopeArgs a, std::int64_t blocks, cudaStream_t stream) {
  constexpr int W = kWide<T>;
  const bool wide = wide_heads(a, W, {&op.qkv, &op.q_norm, &op.k_norm, &op.dq, &op.dkv, &op.dqkv});
  a.lanes = wide ? lanes_for(a, W, 1) : 32;
  const auto kernel = wide ? qk_rope_bwd_kernel<T, U, W, 1, Norm> : qk_rope_bwd_kernel<T, U, 1, kUnits, Norm>;
  const auto bytes = Norm ? sizeof(float) * static_cast<unsigned>(kThreads / a.lanes * a.D) : 0;
  kernel<<<unsigned(blocks), kThreads, bytes, stream>>>(a);
  launched("qk_rope_bwd_kernel");
}

template <class T, class U>
void qk_rope_bwd(const QkRopeBwd& op, const RopeArgs& a, std::int64_t blocks, cudaStream_t stream) {
  op.q_norm || op.k_norm ? qk_rope_bwd<T, U, true>(op, a, blocks, stream)
                         : qk_rope_bwd<T, U, false>(op, a, blocks, stream);
}

void check(const RopeArgs& a) {
  need(a.D <= kMaxD && 2 * a.R <= a.D,
       "qk_rope: heads of more than 256 dimensions, or more angles than pairs");
}

}  // namespace

void launch_qk_rope_fwd(const QkRopeFwd& op, cudaStream_t stream) {
  const std::int64_t N = op.q.shape[0], H = op.q.shape[1], D = op.q.shape[2], G = op.kv.shape[2];
  op.qkv.expect({N, H + 2 * G, D}), op.kv.expect({2, N, G, D}), op.positions.expect({N});
  need(op.qkv.contiguous() && op.q.contiguous() && op.kv.contiguous(), "qk_rope_fwd: rows are strided");
  const RopeArgs a{.qkv = op.qkv.data,
                   .q_norm = op.q_norm.data,
                   .k_norm = op.k_norm.data,
                   .positions = device<std::int64_t>(op.positions),
                   .inv_freq = device<double>(op.inv_freq),
                   .q = op.q.data,
                   .kv = op.kv.data,
                   .dqkv = nullptr,
                   .partial = nullptr,
                   .N = N,
                   .H = int(H),
                   .G = int(G),
                   .D = int(D),
                   .R = op.inv_freq ? int(op.inv_freq.shape[0]) : 0,
                   .lanes = 0,
                   .factor = float(op.factor),
                   .eps = float(op.eps)};
  check(a);
  if (N * (H + G) * D == 0) return;
  is_bf16(op.qkv) ? qk_rope_fwd<nv_bf16>(op, a, stream) : qk_rope_fwd<float>(op, a, stream);
}

void launch_qk_rope_bwd(const QkRopeBwd& op, Scratch scratch, cudaStream_t stream) {
  const std::int64_t N = op.dq.shape[0], H = op.dq.shape[1], D = op.dq.shape[2], G = op.dkv.shape[2];
  op.qkv.expect({N, H + 2 * G, D}), op.dqkv.expect({N, H + 2 * G, D}), op.dkv.expect({2, N, G, D});
  op.positions.expect({N});
  need(op.qkv.contiguous() && op.dqkv.contiguous() && op.dq.contiguous() && op.dkv.contiguous() &&
           op.dq.dtype == op.dkv.dtype,
       "qk_rope_bwd: layout");
  const bool sums = op.dq_norm || op.dk_norm;
  RopeArgs a{.qkv = op.qkv.data,
             .q_norm = op.q_norm.data,
             .k_norm = op.k_norm.data,
             .positions = device<std::int64_t>(op.positions),
             .inv_freq = device<double>(op.inv_freq),
             .q = op.dq.data,
             .kv = op.dkv.data,
             .dqkv = op.dqkv.data,
             .partial = sums ? static_cast<float*>(scratch.data) : nullptr,
             .N = N,
             .H = int(H),
             .G = int(G),
             .D = int(D),
             .R = op.inv_freq ? int(op.inv_freq.shape[0]) : 0,
             .lanes = 0,
             .factor = float(op.factor),
             .eps = float(op.eps)};
  check(a);
  if (N * (H + G) * D == 0) return;
  const std::int64_t blocks = partial_rows(scratch, 2 * D, ceil_div(N, kTokensAtLeast));
  if (!is_bf16(op.qkv)) {
    need(!is_bf16(op.dq), "qk_rope_bwd: gradients are narrower than their heads");
    qk_rope_bwd<float, float>(op, a, blocks, stream);
  } else if (is_bf16(op.dq)) {
    qk_rope_bwd<nv_bf16, nv_bf16>(op, a, blocks, stream);
  } else {
    qk_rope_bwd<nv_bf16, float>(op, a, blocks, stream);
  }
  if (op.q_norm && op.dq_norm)
    launch_add_partials(a.partial, blocks, 2 * D, D, device<float>(op.dq_norm), stream);
  if (op.k_norm && op.dk_norm)
    launch_add_partials(a.partial + D, blocks, 2 * D, D, device<float>(op.dk_norm), stream);
}

}  // namespace annulus::cuda
