// AdamW. Memory bound: n * (sizeof grad + 6 * sizeof state + sizeof weight) bytes.
//
//   grid   one thread per E = 4 (f32 state) or 8 (bf16 state) elements, aligned in the parameter's full shape
//   each   thread updates its elements; in bf16 every four of them share three draws (weight and both
//          moments)
//   needs  offsets are 64-bit; a slice that does not begin on such a boundary, or is misaligned, is read and
//          written one element at a time, with the same bits
//   source Loshchilov & Hutter 2019, alg. 2; checked against src/ops/cpu
#include <cmath>
#include "core/bf16.h"
#include "core/rng.h"
#include "kernels/adamw.h"
#include "kernels/common.cuh"

namespace annulus::cuda {
namespace {

constexpr int kThreads = 256;

struct AdamArgs {
  const void* grad;
  void *master, *m, *v, *weight;  // weight may be null
  std::int64_t n, from;
  float beta1, rest1, beta2, rest2, keep, rate, correct2, eps, grad_scale;
  std::uint64_t seed, stream;
  bool wide;
};

/// `n` elements from `p + at`, or all E at once.
template <int E, class T>
__device__ __forceinline__ void fetch(float (&v)[E], const T* p, std::int64_t at, int begin, int end,
                                      bool all) {
  if (all) return load(v, p + at);
#pragma unroll
  for (int e = 0; e < E; ++e) v[e] = e >= begin && e < end ? to_float(p[at + e]) : 0.f;
}

template <int E, class T>
__device__ __forceinline__ void put(T* p, std::int64_t at, const float (&v)[E], int begin, int end,
                                    bool all) {
  if (all) return store(p + at, v);
#pragma unroll
  for (int e = 0; e < E; ++e)
    if (e >= begin && e < end) p[at + e] = from_float<T>(v[e]);
}

/// The values that bf16 holds, rounded up or down at random: a later rounding to bf16 changes nothing.
template <int E>
__device__ __forceinline__ void round_randomly(float (&v)[E], const AdamArgs& a, Draw what,
                                               std::int64_t index) {
#pragma unroll
  for (int e = 0; e < E; e += 4) {
    const auto words = draw(a.seed, what, a.stream, static_cast<std::uint64_t>((index + e) / 4));
#pragma unroll
    for (int i = 0; i < 4; ++i)
      v[e + i] = __uint_as_float(std::uint32_t{narrow_stochastic(v[e + i], words[i]).bits} << 16);
  }
}

template <class G, class S, class T, int E>
__global__ void __launch_bounds__(kThreads) adamw_kernel(AdamArgs a) {
  const std::int64_t lead = a.from % E;  // the first thread's elements begin before the slice by this
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads * E;
  for (std::int64_t at = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * E - lead; at < a.n;
       at += step) {
    const int begin = at < 0 ? static_cast<int>(-at) : 0;
    const int end = a.n - at < E ? static_cast<int>(a.n - at) : E;
    const bool all = a.wide && begin == 0 && end == E;
    float g[E], w[E], m[E], v[E];
    fetch(g, static_cast<const G*>(a.grad), at, begin, end, all);
    fetch(w, static_cast<const S*>(a.master), at, begin, end, all);
    fetch(m, static_cast<const S*>(a.m), at, begin, end, all);
    fetch(v, static_cast<const S*>(a.v), at, begin, end, all);
#pragma unroll
    for (int e = 0; e < E; ++e) {
      const float grad = g[e] * a.grad_scale;
      m[e] = a.beta1 * m[e] + a.rest1 * grad;
      v[e] = a.beta2 * v[e] + a.rest2 * grad * grad;
      w[e] = a.keep * w[e] - a.rate * m[e] / (sqrtf(v[e] * a.correct2) + a.eps);
    }
    if constexpr (std::is_same_v<S, nv_bf16>) {
      round_randomly(m, a, Draw::moment1, a.from + at);
      round_randomly(v, a, Draw::moment2, a.from + at);
      round_randomly(w, a, Draw::weight, a.from + at);
    }
    put(static_cast<S*>(a.m), at, m, begin, end, all);
    put(static_cast<S*>(a.v), at, v, begin, end, all);
    put(static_cast<S*>(a.master), at, w, begin, end, all);
    if (a.weight != nullptr) put(static_cast<T*>(a.weight), at, w, begin, end, all);
  }
}

template <class G, class S, class T>
void adamw(const AdamArgs& args, cudaStream_t stream) {
  constexpr int E = std::is_same_v<S, nv_bf16> ? 8 : 4;
  adamw_kernel<G, S, T, E>
      <<<grid_for(ceil_div(args.n + args.from % E, kThreads * E)), kThreads, 0, stream>>>(args);
  launched("adamw_kernel");
}

template <class G, class S>
void adamw(const AdamArgs& args, bool weight_bf16, cudaStream_t stream) {
  weight_bf16 ? adamw<G, S, nv_bf16>(args, stream) : adamw<G, S, float>(args, stream);
}

}  // namespace

void launch_adamw(const AdamW& a, cudaStream_t stream) {
  const std::int64_t n = a.master.size();
  need(a.grad.size() == n && a.m.size() == n && a.v.size() == n && (!a.weight || a.weight.size() == n),
       "adamw: sizes differ");
  need(a.m.dtype == a.master.dtype && a.v.dtype == a.master.dtype, "adamw: moments have another type");
  if (n == 0) return;
  const bool state_bf16 = is_bf16(a.master), grad_bf16 = is_bf16(a.grad);
  const int E = state_bf16 ? 8 : 4;
  const double correct1 = 1.0 - std::pow(a.beta1, static_cast<double>(a.step));
  const double correct2 = 1.0 - std::pow(a.beta2, static_cast<double>(a.step));
  const AdamArgs args{.grad = a.grad.data,
                      .master = a.master.data,
                      .m = a.m.data,
                      .v = a.v.data,
                      .weight = a.weight.data,
                      .n = n,
                      .from = a.from,
                      .beta1 = float(a.beta1),
                      .rest1 = float(1.0 - a.beta1),
                      .beta2 = float(a.beta2),
                      .rest2 = float(1.0 - a.beta2),
                      .keep = float(1.0 - a.lr * a.decay),
                      .rate = float(a.lr / correct1),
                      .correct2 = float(1.0 / correct2),
                      .eps = float(a.eps),
                      .grad_scale = float(a.grad_scale),
                      .seed = a.seed,
                      .stream = (static_cast<std::uint64_t>(a.step) << 20) + a.parameter,
                      .wide = a.from % E == 0 && wide_vector(a.grad, E) && wide_vector(a.master, E) &&
                              wide_vector(a.m, E) && wide_vector(a.v, E) && wide_vector(a.weight, E)};
  const bool weight_bf16 = a.weight && is_bf16(a.weight);
  if (state_bf16) {
    grad_bf16 ? adamw<nv_bf16, nv_bf16>(args, weight_bf16, stream)
              : adamw<float, nv_bf16>(args, weight_bf16, stream);
  } else {
    grad_bf16 ? adamw<nv_bf16, float>(args, weight_bf16, stream)
              : adamw<float, float>(args, weight_bf16, stream);
  }
}

}  // namespace annulus::cuda
