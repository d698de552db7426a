// Attention, forward and backward, on plain arithmetic: for f32, and for head sizes that the tensor-core
// kernels do not have. Simple and correct before fast: every score is one warp's dot product.
//
//   grid   a warp per (query, head) forward and for dq, per (key, key/value head) for dk and dv
//   each   lane owns the dimensions lane, lane + 32, ...; keys (or queries) pass four at a time
//   needs  D <= 256; offsets are 64-bit; deterministic
//   source Dao et al. 2022, alg. 1 and 4; checked against src/ops/cpu
#include "kernels/attention_args.h"
#include "kernels/common.cuh"

namespace annulus::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kAtOnce = 4;

/// The lane's J dimensions of a head; zeros beyond D.
template <int J, class T>
__device__ __forceinline__ void read(float (&v)[J], const T* head, int D, int lane) {
#pragma unroll
  for (int j = 0; j < J; ++j) v[j] = lane + 32 * j < D ? to_float(head[lane + 32 * j]) : 0.f;
}

template <int J>
__device__ __forceinline__ float dot(const float (&a)[J], const float (&b)[J]) {
  float sum = 0.f;
#pragma unroll
  for (int j = 0; j < J; ++j) sum += a[j] * b[j];
  return lane_sum(sum);
}

/// Keys of a run that a query at `position` sees, whose first visible position is `first`.
struct Span {
  std::int64_t begin, end;
};
__device__ __forceinline__ Span seen(const Run& keys, std::int64_t first, std::int64_t position) {
  return {max(first - keys.position, std::int64_t{0}), min(position + 1 - keys.position, keys.count)};
}

/// This warp's (row of the run, head); false past the end.
__device__ __forceinline__ bool my_item(std::int64_t rows, int heads, std::int64_t& row, int& head) {
  const std::int64_t item = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  row = item / heads, head = static_cast<int>(item % heads);
  return row < rows;
}

template <class T, int J>
__global__ void __launch_bounds__(kThreads)
    attention_fwd_plain_kernel(const __grid_constant__ AttentionFwdArgs a) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::int64_t i;
  int h;
  if (!my_item(a.queries.count, a.H, i, h)) return;
  const std::int64_t row = a.queries.at + i, first = a.first[row], position = a.queries.position + i;
  const std::int64_t column = std::int64_t{h / (a.H / a.G)} * a.D;
  float q[J], out[J] = {}, top = -INFINITY, sum = 0.f;
  read(q, static_cast<const T*>(a.q) + row * a.q_stride + std::int64_t{h} * a.D, a.D, lane);
  for (int r = 0; r < a.count; ++r) {
    const Span span = seen(a.keys[r], first, position);
    for (std::int64_t j = span.begin; j < span.end; j += kAtOnce) {
      float s[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        float k[J] = {};
        if (j + u < span.end)
          read(k, static_cast<const T*>(a.k) + (a.keys[r].at + j + u) * a.k_stride + column, a.D, lane);
        s[u] = j + u < span.end ? dot(q, k) * a.scale : -INFINITY;
      }
      float now = top;
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) now = fmaxf(now, s[u]);
      const float shrink = expf(top - now);  // now is finite: the first key of the four is seen
      top = now;
      sum *= shrink;
#pragma unroll
      for (int d = 0; d < J; ++d) out[d] *= shrink;
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        if (j + u >= span.end) continue;
        const float p = expf(s[u] - now);
        float v[J];
        read(v, static_cast<const T*>(a.v) + (a.keys[r].at + j + u) * a.v_stride + column, a.D, lane);
        sum += p;
#pragma unroll
        for (int d = 0; d < J; ++d) out[d] += p * v[d];
      }
    }
  }
  float* lse = a.lse + h * a.lse_stride + row;
  const float before = a.begins ? -INFINITY : *lse;
  __syncwarp();  // all lanes have read lse before one writes it
  const float block = sum > 0.f ? top + logf(sum) : -INFINITY, highest = fmaxf(before, block);
  float keep = 0.f, take = 0.f, after = -INFINITY;
  if (highest != -INFINITY) {
    keep = expf(before - highest), take = expf(block - highest);
    const float total = keep + take;
    after = highest + logf(total);
    keep /= total;
    take = sum > 0.f ? take / (total * sum) : 0.f;
  }
  if (lane == 0) *lse = after;
#pragma unroll
  for (int d = 0; d < J; ++d) {
    const std::int64_t at = std::int64_t{h} * a.D + lane + 32 * d;
    if (lane + 32 * d >= a.D) continue;
    float x = out[d] * take;
    if (keep != 0.f) x += keep * a.acc[row * a.acc_stride + at];
    if (a.ends)
      static_cast<T*>(a.o)[row * a.o_stride + at] = from_float<T>(x);
    else
      a.acc[row * a.acc_stride + at] = x;
  }
}

template <class T, int J>
__device__ __forceinline__ void put(void* base, std::int64_t at, const float (&v)[J], float scale,
                                    bool overwrite, int D, int lane) {
#pragma unroll
  for (int j = 0; j < J; ++j) {
    if (lane + 32 * j >= D) continue;
    if (overwrite)
      static_cast<T*>(base)[at + lane + 32 * j] = from_float<T>(v[j] * scale);
    else
      static_cast<float*>(base)[at + lane + 32 * j] += v[j] * scale;
  }
}

/// Probability of a pair that is seen, from its score; 0 where the query never saw a key.
__device__ __forceinline__ float probability(float score, float lse) {
  return lse == -INFINITY ? 0.f : expf(score - lse);
}

template <class T, int J>
__global__ void __launch_bounds__(kThreads)
    attention_dq_plain_kernel(const __grid_constant__ AttentionBwdArgs a) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::int64_t i;
  int h;
  if (!my_item(a.mine.count, a.H, i, h)) return;
  const std::int64_t row = a.mine.at + i, first = a.first[row], position = a.mine.position + i;
  const std::int64_t mine = std::int64_t{h} * a.D, column = std::int64_t{h / (a.H / a.G)} * a.D;
  const float lse = a.lse[h * a.lse_stride + row], delta = a.delta[h * a.delta_stride + row];
  float q[J], d_o[J], dq[J] = {};
  read(q, static_cast<const T*>(a.q) + row * a.q_stride + mine, a.D, lane);
  read(d_o, static_cast<const T*>(a.d_o) + row * a.d_o_stride + mine, a.D, lane);
  for (int r = 0; r < a.count; ++r) {
    const Span span = seen(a.others[r], first, position);
#pragma unroll 4
    for (std::int64_t j = span.begin; j < span.end; ++j) {
      float k[J], v[J];
      read(k, static_cast<const T*>(a.k) + (a.others[r].at + j) * a.k_stride + column, a.D, lane);
      read(v, static_cast<const T*>(a.v) + (a.others[r].at + j) * a.v_stride + column, a.D, lane);
      const float ds = probability(dot(q, k) * a.scale, lse) * (dot(d_o, v) - delta);
#pragma unroll
      for (int d = 0; d < J; ++d) dq[d] += ds * k[d];
    }
  }
  put<T>(a.dq, row * a.dq_stride + mine, dq, a.scale, a.overwrite, a.D, lane);
}

template <class T, int J>
__global__ void __launch_bounds__(kThreads)
    attention_dkv_plain_kernel(const __grid_constant__ AttentionBwdArgs a) {
  const int lane = static_cast<int>(threadIdx.x) % 32, ratio = a.H / a.G;
  std::int64_t i;
  int g;
  if (!my_item(a.mine.count, a.G, i, g)) return;
  const std::int64_t row = a.mine.at + i, position = a.mine.position + i, mine = std::int64_t{g} * a.D;
  float k[J], v[J], dk[J] = {}, dv[J] = {};
  read(k, static_cast<const T*>(a.k) + row * a.k_stride + mine, a.D, lane);
  read(v, static_cast<const T*>(a.v) + row * a.v_stride + mine, a.D, lane);
  for (int r = 0; r < a.count; ++r) {
    const Run& run = a.others[r];
    const std::int64_t begin = max(position - run.position, std::int64_t{0});
    for (int h = g * ratio; h < g * ratio + ratio; ++h) {
#pragma unroll 4
      for (std::int64_t n = begin; n < run.count; ++n) {
        const std::int64_t other = run.at + n;
        if (a.first[other] > position) break;  // nor do later queries of the run see this key
        const std::int64_t column = std::int64_t{h} * a.D;
        float q[J], d_o[J];
        read(q, static_cast<const T*>(a.q) + other * a.q_stride + column, a.D, lane);
        read(d_o, static_cast<const T*>(a.d_o) + other * a.d_o_stride + column, a.D, lane);
        const float p = probability(dot(q, k) * a.scale, a.lse[h * a.lse_stride + other]);
        const float ds = p * (dot(d_o, v) - a.delta[h * a.delta_stride + other]);
#pragma unroll
        for (int d = 0; d < J; ++d) dv[d] += p * d_o[d], dk[d] += ds * q[d];
      }
    }
  }
  put<T>(a.dk, row * a.dk_stride + mine, dk, a.scale, a.overwrite, a.D, lane);
  put<T>(a.dv, row * a.dv_stride + mine, dv, 1.f, a.overwrite, a.D, lane);
}

/// The kernel whose lanes hold D dimensions.
template <class Args>
using Kernel = void (*)(Args);
template <class Args>
Kernel<Args> pick(int D, Kernel<Args> narrow, Kernel<Args> middle, Kernel<Args> broad) {
  need(D <= 256, "attention: heads of more than 256 dimensions are not supported");
  return D <= 64 ? narrow : D <= 128 ? middle : broad;
}

template <class Args>
void launch(Kernel<Args> kernel, const Args& a, std::int64_t items, cudaStream_t stream) {
  const std::int64_t blocks = ceil_div(items, kWarps);
  need(blocks <= 0x7fffffff, "attention: too many rows for one launch");
  kernel<<<unsigned(blocks), kThreads, 0, stream>>>(a);
  launched("attention_plain_kernel");
}

template <class T>
void fwd(const AttentionFwdArgs& a, cudaStream_t stream) {
  launch(pick<AttentionFwdArgs>(a.D, attention_fwd_plain_kernel<T, 2>, attention_fwd_plain_kernel<T, 4>,
                                attention_fwd_plain_kernel<T, 8>),
         a, a.queries.count * a.H, stream);
}

template <class T>
void dq(const AttentionBwdArgs& a, cudaStream_t stream) {
  launch(pick<AttentionBwdArgs>(a.D, attention_dq_plain_kernel<T, 2>, attention_dq_plain_kernel<T, 4>,
                                attention_dq_plain_kernel<T, 8>),
         a, a.mine.count * a.H, stream);
}

template <class T>
void dkv(const AttentionBwdArgs& a, cudaStream_t stream) {
  launch(pick<AttentionBwdArgs>(a.D, attention_dkv_plain_kernel<T, 2>, attention_dkv_plain_kernel<T, 4>,
                                attention_dkv_plain_kernel<T, 8>),
         a, a.mine.count * a.G, stream);
}

}  // namespace

void launch_attention_fwd_plain(const AttentionFwdArgs& a, bool bf16, cudaStream_t stream) {
  bf16 ? fwd<nv_bf16>(a, stream) : fwd<float>(a, stream);
}

void launch_attention_dq_plain(const AttentionBwdArgs& a, bool bf16, cudaStream_t stream) {
  bf16 ? dq<nv_bf16>(a, stream) : dq<float>(a, stream);
}

void launch_attention_dkv_plain(const AttentionBwdArgs& a, bool bf16, cudaStream_t stream) {
  bf16 ? dkv<nv_bf16>(a, stream) : dkv<float>(a, stream);
}

}  // namespace annulus::cuda
