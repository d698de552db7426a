// Per-head RMSNorm of q and k, and rotary embedding, in plain loops; everything between load and store is
// double.
#include <cmath>
#include <vector>
#include "ops/cpu/loops.h"
#include "ops/cpu/reference.h"

namespace annulus::ref {
namespace {

/// cos and sin of one token's angles, times the attention factor.
class Angles {
 public:
  Angles(const Tensor& inv_freq, double factor)
      : inv_freq_(inv_freq.as<double>()),
        R_(inv_freq.shape[0]),
        factor_(factor),
        cos_(size()),
        sin_(size()) {}

  void turn(std::int64_t position) {
    for (std::size_t i = 0; i < size(); ++i) {
      const double t = static_cast<double>(position) * inv_freq_[i];
      cos_[i] = factor_ * std::cos(t);
      sin_[i] = factor_ * std::sin(t);
    }
  }
  void rotate(double* x) const { apply(x, 1.0); }
  void rotate_back(double* x) const { apply(x, -1.0); }  // the transpose

 private:
  std::size_t size() const { return static_cast<std::size_t>(R_); }
  void apply(double* x, double sign) const {
    double* y = x + R_;
    for (std::size_t i = 0; i < size(); ++i) {
      const double x0 = x[i], y0 = y[i], s = sign * sin_[i];
      x[i] = x0 * cos_[i] - y0 * s;
      y[i] = y0 * cos_[i] + x0 * s;
    }
  }
  const double* inv_freq_;
  std::int64_t R_;
  double factor_;
  std::vector<double> cos_, sin_;
};

template <class T>
double rstd_of(const T* x, std::int64_t D, double eps) {
  return 1.0 / std::sqrt(dot(x, x, D) / static_cast<double>(D) + eps);
}

/// Elements [at, at + n) of a tensor in f32 or bf16.
void read(const Tensor& t, std::int64_t at, std::int64_t n, double* to) {
  by_type(t.dtype, [&]<class X>(X) {
    const X* from = t.as<X>() + at;
    for (std::int64_t i = 0; i < n; ++i) to[i] = widen(from[i]);
  });
}

/// Through the norm of one head: dy (of w * x * rstd) becomes dx; dw grows.
template <class T>
void norm_back(double* dy, const T* x, const T* w, double eps, std::int64_t D, double* dw) {
  const double r = rstd_of(x, D, eps);
  double mean = 0.0;
  for (std::int64_t d = 0; d < D; ++d) {
    const double gradient = dy[d] * widen(x[d]) * r;
    dw[d] += gradient;
    mean += gradient * widen(w[d]);
  }
  mean /= static_cast<double>(D);
  for (std::int64_t d = 0; d < D; ++d) dy[d] = r * (dy[d] * widen(w[d]) - widen(x[d]) * r * mean);
}

void add_to(const Tensor& out, const std::vector<double>& sum) {
  if (!out) return;
  float* to = out.as<float>();
  for (std::size_t d = 0; d < sum.size(); ++d) to[d] = static_cast<float>(to[d] + sum[d]);
}

}  // namespace

void qk_rope_fwd(const QkRopeFwd& a) {
  const std::int64_t N = a.q.shape[0], H = a.q.shape[1], D = a.q.shape[2], G = a.kv.shape[2];
  const std::int64_t* positions = a.positions.as<std::int64_t>();
  Angles angles(a.inv_freq, a.factor);
  std::vector<double> head(static_cast<std::size_t>(D));
  double* x = head.data();
  by_type(a.qkv.dtype, [&]<class T>(T) {
    for (std::int64_t n = 0; n < N; ++n) {
      angles.turn(positions[n]);
      for (std::int64_t h = 0; h < H + G; ++h) {
        const T* in = a.qkv.as<T>() + (n * (H + 2 * G) + h) * D;
        T* out = h < H ? a.q.as<T>() + (n * H + h) * D : a.kv.as<T>() + (n * G + h - H) * D;
        const Tensor& norm = h < H ? a.q_norm : a.k_norm;
        const T* w = norm ? norm.as<T>() : nullptr;
        const double r = w != nullptr ? rstd_of(in, D, a.eps) : 1.0;
        for (std::int64_t d = 0; d < D; ++d) x[d] = widen(in[d]) * r * (w != nullptr ? widen(w[d]) : 1.0);
        angles.rotate(x);
        for (std::int64_t d = 0; d < D; ++d) out[d] = store<T>(static_cast<float>(x[d]));
      }
      const T* v = a.qkv.as<T>() + (n * (H + 2 * G) + H + G) * D;
      std::copy(v, v + G * D, a.kv.as<T>() + (N + n) * G * D);
    }
  });
}

void qk_rope_bwd(const QkRopeBwd& a) {
  const std::int64_t N = a.dq.shape[0], H = a.dq.shape[1], D = a.dq.shape[2], G = a.dkv.shape[2];
  const std::int64_t* positions = a.positions.as<std::int64_t>();
  Angles angles(a.inv_freq, a.factor);
  const auto size = static_cast<std::size_t>(D);
  std::vector<double> head(size), dq_norm(size, 0.0), dk_norm(size, 0.0);
  double* d_head = head.data();
  by_type(a.qkv.dtype, [&]<class T>(T) {
    for (std::int64_t n = 0; n < N; ++n) {
      angles.turn(positions[n]);
      for (std::int64_t h = 0; h < H + 2 * G; ++h) {
        const std::int64_t at = (n * (H + 2 * G) + h) * D;  // read from qkv before dqkv is written
        if (h < H)
          read(a.dq, (n * H + h) * D, D, d_head);
        else if (h < H + G)
          read(a.dkv, (n * G + h - H) * D, D, d_head);
        else
          read(a.dkv, ((N + n) * G + h - H - G) * D, D, d_head);
        if (h < H + G) {
          angles.rotate_back(d_head);
          const Tensor& norm = h < H ? a.q_norm : a.k_norm;
          if (norm)
            norm_back(d_head, a.qkv.as<T>() + at, norm.as<T>(), a.eps, D, (h < H ? dq_norm : dk_norm).data());
        }
        T* out = a.dqkv.as<T>() + at;
        for (std::int64_t d = 0; d < D; ++d) out[d] = store<T>(static_cast<float>(d_head[d]));
      }
    }
  });
  add_to(a.dq_norm, dq_norm);
  add_to(a.dk_norm, dk_norm);
}

}  // namespace annulus::ref
