// Attention, forward: for a tile of queries and each head, visible keys pass in tiles; scores and outputs by
// BLAS, a running softmax in between (Milakov & Gimelshein 2018), then a merge into what earlier blocks gave.
#include <cmath>
#include <limits>
#include "ops/cpu/attention.h"
#include "ops/cpu/blas.h"
#include "ops/cpu/reference.h"

namespace annulus::ref {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();  // log of an empty sum

/// Places in the workspace. Copies of q, k and v are there for types below f32 only.
struct Workspace {
  float *scores, *out, *q, *k, *v;
  static std::int64_t floats(std::int64_t D, bool copies) {
    return kQueries * kKeys + kQueries * D + (copies ? (kQueries + 2 * kKeys) * D : 0);
  }
  Workspace(const Tensor& t, std::int64_t D) {
    scores = static_cast<float*>(t.data);
    out = scores + kQueries * kKeys;
    q = out + kQueries * D;
    k = q + kQueries * D;
    v = k + kKeys * D;
  }
};

/// The running softmax of a tile's queries: out = sum of e^(s - top) v, total = sum of e^(s - top).
struct Running {
  std::array<float, kQueries> top;
  std::array<double, kQueries> total;
};

/// Scores of one query over keys [lo, hi) of a tile of `nk` become weights e^(s - top); hidden ones 0.
/// `out` (D) and `total` are brought to the new top.
void soften(float* s, std::int64_t lo, std::int64_t hi, std::int64_t nk, float& top, double& total,
            float* out, std::int64_t D) {
  if (lo >= hi) {
    std::fill(s, s + nk, 0.f);
    return;
  }
  float now = top;
#pragma omp simd reduction(max : now)
  for (std::int64_t j = lo; j < hi; ++j) now = s[j] > now ? s[j] : now;
  if (now > top) {
    const float shrink = top == kNothing ? 0.f : std::exp(top - now);
    total *= shrink;
    for (std::int64_t d = 0; d < D; ++d) out[d] *= shrink;
    top = now;
  }
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = lo; j < hi; ++j) {
    s[j] = exp_fast(s[j] - now);
    sum += s[j];
  }
  total += sum;
  std::fill(s, s + lo, 0.f);
  std::fill(s + hi, s + nk, 0.f);
}

/// (acc, lse) <- merge((acc, lse), (out / total, top + log total)) of one query.
void merge(float* acc, float& lse, const float* out, float top, double total, std::int64_t D) {
  if (total == 0.0) return;  // saw no key here
  const double part = top + std::log(total), before = lse;
  const double larger = std::max(part, before), smaller = std::min(part, before);
  const double both = larger + std::log1p(std::exp(smaller - larger));  // smaller may be -inf, larger is not
  const double keep = std::exp(before - both), take = std::exp(part - both) / total;
  for (std::int64_t d = 0; d < D; ++d) acc[d] = static_cast<float>(acc[d] * keep + out[d] * take);
  lse = static_cast<float>(both);
}

template <class T>
class Forward {
 public:
  explicit Forward(const AttentionFwd& a)
      : a_(a),
        Tq_(a.q.shape[0]),
        H_(a.q.shape[1]),
        D_(a.q.shape[2]),
        ratio_(H_ / a.k.shape[1]),
        w_(a.workspace, D_),
        lse_(a.lse.as<float>()) {}

  void run() {
    if (a_.begins) begin();
    for (const AttentionBlock& b : a_.blocks)
      for (std::int64_t i = 0; i < b.q_count; i += kQueries) {
        const std::int64_t n = std::min(kQueries, b.q_count - i);
        const Visible s = visible(b, a_.first.as<std::int64_t>(), i, n);
        if (s.begin >= s.end) continue;
        for (std::int64_t h = 0; h < H_; ++h) tile(b, s, i, n, h);
      }
    if (a_.ends && a_.acc) end();
  }

 private:
  T* out_row(std::int64_t row) const { return a_.o.as<T>() + row * a_.o.stride(); }

  void begin() {
    std::fill(lse_, lse_ + H_ * Tq_, kNothing);
    if (a_.acc)
      std::fill_n(a_.acc.as<float>(), a_.acc.size(), 0.f);
    else
      for (std::int64_t i = 0; i < Tq_; ++i) std::fill_n(out_row(i), H_ * D_, store<T>(0.f));
  }

  void tile(const AttentionBlock& b, const Visible& s, std::int64_t i, std::int64_t n, std::int64_t h) {
    const std::int64_t row = b.q_at + i;
    const Head q = head_rows<T>(a_.q, h, row, n, w_.q);
    Running r;
    r.top.fill(kNothing);
    r.total.fill(0.0);
    std::fill_n(w_.out, n * D_, 0.f);
    for (std::int64_t j = s.begin; j < s.end; j += kKeys) {
      const std::int64_t nk = std::min(kKeys, s.end - j);
      const Head k = head_rows<T>(a_.k, h / ratio_, b.k_at + j, nk, w_.k);
      const Head v = head_rows<T>(a_.v, h / ratio_, b.k_at + j, nk, w_.v);
      gemm({.trans_b = true,
            .M = n,
            .N = nk,
            .K = D_,
            .alpha = static_cast<float>(a_.scale),
            .a = q.data,
            .lda = q.ld,
            .b = k.data,
            .ldb = k.ld,
            .c = w_.scores,
            .ldc = nk});
      for (std::int64_t x = 0; x < n; ++x) {
        const auto at = static_cast<std::size_t>(x);
        soften(w_.scores + x * nk, std::clamp<std::int64_t>(s.lo[at] - j, 0, nk),
               std::clamp<std::int64_t>(s.hi[at] - j, 0, nk), nk, r.top[at], r.total[at], w_.out + x * D_,
               D_);
      }
      gemm({.M = n,
            .N = D_,
            .K = nk,
            .a = w_.scores,
            .lda = nk,
            .b = v.data,
            .ldb = v.ld,
            .beta = 1.f,
            .c = w_.out,
            .ldc = D_});
    }
    for (std::int64_t x = 0; x < n; ++x) fold(row + x, h, w_.out + x * D_, r, static_cast<std::size_t>(x));
  }

  void fold(std::int64_t row, std::int64_t h, const float* out, const Running& r, std::size_t x) {
    float& lse = lse_[h * Tq_ + row];
    if (a_.acc) {
      merge(a_.acc.as<float>() + (row * H_ + h) * D_, lse, out, r.top[x], r.total[x], D_);
    } else if (r.total[x] > 0.0) {
      lse = static_cast<float>(r.top[x] + std::log(r.total[x]));
      for (std::int64_t d = 0; d < D_; ++d)
        out_row(row)[h * D_ + d] = store<T>(static_cast<float>(out[d] / r.total[x]));
    }
  }

  void end() {
    for (std::int64_t i = 0; i < Tq_; ++i) save(a_.acc.as<float>() + i * H_ * D_, H_ * D_, out_row(i));
  }

  const AttentionFwd& a_;
  const std::int64_t Tq_, H_, D_, ratio_;
  const Workspace w_;
  float* lse_;
};

}  // namespace

std::int64_t attention_fwd_bytes(const AttentionFwd& a) {
  return Workspace::floats(a.q.shape[2], a.q.dtype != DType::f32) * bytes_of(DType::f32);
}

void attention_fwd(const AttentionFwd& a) {
  by_type(a.q.dtype, [&]<class T>(T) { Forward<T>(a).run(); });
}

void attention_delta(const AttentionDelta& a) {
  const std::int64_t N = a.o.shape[0], H = a.o.shape[1], D = a.o.shape[2];
  float* delta = a.delta.as<float>();
  by_type(a.o.dtype, [&]<class T>(T) {
    for (std::int64_t n = 0; n < N; ++n)
      for (std::int64_t h = 0; h < H; ++h)
        delta[h * N + n] = static_cast<float>(
            dot(a.o.as<T>() + n * a.o.stride() + h * D, a.d_o.as<T>() + n * a.d_o.stride() + h * D, D));
  });
}

}  // namespace annulus::ref
