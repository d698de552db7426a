// Attention, backward: for a tile of queries, a head and a tile of visible keys, five products by BLAS:
//   p = exp(scale q k' - lse);  dv += p' d_o;  ds = p (d_o v' - delta) scale;  dq += ds k;  dk += ds' q
#include <cmath>
#include <limits>
#include "ops/cpu/attention.h"
#include "ops/cpu/blas.h"
#include "ops/cpu/reference.h"

namespace annulus::ref {
namespace {

/// Gradients are summed in f32: in the outputs, or, where those are of a lower type, in the workspace.
struct Sums {
  float *dq, *dk, *dv;
  std::int64_t q_ld, k_ld, v_ld;
};

template <class T>
class Backward {
 public:
  explicit Backward(const AttentionBwd& a)
      : a_(a),
        Tq_(a.q.shape[0]),
        H_(a.q.shape[1]),
        D_(a.q.shape[2]),
        G_(a.k.shape[1]),
        scores_(static_cast<float*>(a.workspace.data)),
        d_scores_(scores_ + kQueries * kKeys),
        q_(d_scores_ + kQueries * kKeys),
        d_o_(q_ + kQueries * D_),
        k_(d_o_ + kQueries * D_),
        v_(k_ + kKeys * D_) {}

  static std::int64_t floats(std::int64_t D) {
    return 2 * kQueries * kKeys + (std::is_same_v<T, float> ? 0 : 2 * (kQueries + kKeys) * D);
  }

  void run() {
    const bool direct = a_.dq.dtype == DType::f32;
    sums_ = direct ? in_outputs() : in_workspace();
    for (const AttentionBlock& b : a_.blocks)
      for (std::int64_t i = 0; i < b.q_count; i += kQueries) {
        const std::int64_t n = std::min(kQueries, b.q_count - i);
        const Visible s = visible(b, a_.first.as<std::int64_t>(), i, n);
        for (std::int64_t j = s.begin; j < s.end; j += kKeys)
          for (std::int64_t h = 0; h < H_; ++h) tile(b, s, i, n, j, std::min(kKeys, s.end - j), h);
      }
    if (direct) return;
    put(sums_.dq, a_.dq);
    put(sums_.dk, a_.dk);
    put(sums_.dv, a_.dv);
  }

 private:
  Sums in_outputs() const {
    return {a_.dq.as<float>(), a_.dk.as<float>(), a_.dv.as<float>(),
            a_.dq.stride(),    a_.dk.stride(),    a_.dv.stride()};
  }
  Sums in_workspace() const {
    float* dq = scores_ + floats(D_);
    float* dk = dq + a_.q.size();
    std::fill_n(dq, a_.q.size() + 2 * a_.k.size(), 0.f);
    return {dq, dk, dk + a_.k.size(), H_ * D_, G_ * D_, G_ * D_};
  }
  static void put(const float* from, const Tensor& to) {
    const std::int64_t row = to.row_size();
    for (std::int64_t i = 0; i < to.shape[0]; ++i) save(from + i * row, row, to.as<T>() + i * to.stride());
  }

  void tile(const AttentionBlock& b, const Visible& s, std::int64_t i, std::int64_t n, std::int64_t j,
            std::int64_t nk, std::int64_t h) {
    const std::int64_t row = b.q_at + i, key = b.k_at + j, g = h / (H_ / G_);
    const float scale = static_cast<float>(a_.scale);
    const Head q = head_rows<T>(a_.q, h, row, n, q_), d_o = head_rows<T>(a_.d_o, h, row, n, d_o_);
    const Head k = head_rows<T>(a_.k, g, key, nk, k_), v = head_rows<T>(a_.v, g, key, nk, v_);
    gemm({.trans_b = true,
          .M = n,
          .N = nk,
          .K = D_,
          .alpha = scale,
          .a = q.data,
          .lda = q.ld,
          .b = k.data,
          .ldb = k.ld,
          .c = scores_,
          .ldc = nk});
    gemm({.trans_b = true,
          .M = n,
          .N = nk,
          .K = D_,
          .a = d_o.data,
          .lda = d_o.ld,
          .b = v.data,
          .ldb = v.ld,
          .c = d_scores_,
          .ldc = nk});
    for (std::int64_t x = 0; x < n; ++x) {
      const auto at = static_cast<std::size_t>(x);
      weigh(h * Tq_ + row + x, std::clamp<std::int64_t>(s.lo[at] - j, 0, nk),
            std::clamp<std::int64_t>(s.hi[at] - j, 0, nk), nk, scores_ + x * nk, d_scores_ + x * nk);
    }
    gemm({.trans_a = true,
          .M = nk,
          .N = D_,
          .K = n,
          .a = scores_,
          .lda = nk,
          .b = d_o.data,
          .ldb = d_o.ld,
          .beta = 1.f,
          .c = sums_.dv + key * sums_.v_ld + g * D_,
          .ldc = sums_.v_ld});
    gemm({.M = n,
          .N = D_,
          .K = nk,
          .alpha = scale,
          .a = d_scores_,
          .lda = nk,
          .b = k.data,
          .ldb = k.ld,
          .beta = 1.f,
          .c = sums_.dq + row * sums_.q_ld + h * D_,
          .ldc = sums_.q_ld});
    gemm({.trans_a = true,
          .M = nk,
          .N = D_,
          .K = n,
          .alpha = scale,
          .a = d_scores_,
          .lda = nk,
          .b = q.data,
          .ldb = q.ld,
          .beta = 1.f,
          .c = sums_.dk + key * sums_.k_ld + g * D_,
          .ldc = sums_.k_ld});
  }

  /// One query: scores become probabilities, d_scores (holding d_o . v) their gradient.
  void weigh(std::int64_t at, std::int64_t lo, std::int64_t hi, std::int64_t nk, float* p, float* ds) const {
    const float lse = a_.lse.as<float>()[at], delta = a_.delta.as<float>()[at];
    if (lse == -std::numeric_limits<float>::infinity()) hi = lo;  // never saw a key
    std::fill(p, p + lo, 0.f);
    std::fill(p + hi, p + nk, 0.f);
    std::fill(ds, ds + lo, 0.f);
    std::fill(ds + hi, ds + nk, 0.f);
#pragma omp simd
    for (std::int64_t x = lo; x < hi; ++x) {
      p[x] = exp_fast(p[x] - lse);
      ds[x] = p[x] * (ds[x] - delta);
    }
  }

  const AttentionBwd& a_;
  const std::int64_t Tq_, H_, D_, G_;
  float *scores_, *d_scores_, *q_, *d_o_, *k_, *v_;  // in the workspace; copies for types below f32 only
  Sums sums_{};
};

}  // namespace

std::int64_t attention_bwd_bytes(const AttentionBwd& a) {
  const std::int64_t D = a.q.shape[2];
  std::int64_t floats = a.q.dtype == DType::f32 ? Backward<float>::floats(D) : Backward<bf16>::floats(D);
  if (a.dq.dtype != DType::f32) floats += a.q.size() + 2 * a.k.size();
  return floats * bytes_of(DType::f32);
}

void attention_bwd(const AttentionBwd& a) {
  by_type(a.q.dtype, [&]<class T>(T) { Backward<T>(a).run(); });
}

}  // namespace annulus::ref
