#include <boost/test/unit_test.hpp>
#include <cmath>
#include "ops/qk_rope_cases.h"
#include "support/judge.h"

namespace annulus::test {
namespace {

constexpr double kEps = 1e-6;

struct Shape4 {
  std::size_t N, H, G, D, R;
  explicit Shape4(const QkRopeCase& c)
      : N(static_cast<std::size_t>(c.N)),
        H(static_cast<std::size_t>(c.H)),
        G(static_cast<std::size_t>(c.G)),
        D(static_cast<std::size_t>(c.D)),
        R(static_cast<std::size_t>(c.R)) {}
};

struct Setup {
  std::vector<std::int64_t> positions;
  Doubles inv_freq;
  explicit Setup(const QkRopeCase& c) {
    for (std::int64_t n = 0; n < c.N; ++n) positions.push_back(n % 4 == 3 ? n : c.position + n);
    for (std::int64_t i = 0; i < c.R; ++i)
      inv_freq.push_back(std::pow(1e6, -static_cast<double>(i) / static_cast<double>(c.R)));
  }
};

double rstd_of(const double* x, std::size_t D) {
  double squares = 0.0;
  for (std::size_t d = 0; d < D; ++d) squares += x[d] * x[d];
  return 1.0 / std::sqrt(squares / static_cast<double>(D) + kEps);
}

/// Rotates one head by `sign` times its angles; angles in long double.
void rotate(double* x, std::int64_t position, const Doubles& inv_freq, double factor, int sign) {
  const std::size_t R = inv_freq.size();
  for (std::size_t i = 0; i < R; ++i) {
    const long double t = static_cast<long double>(position) * inv_freq[i];
    const double c = factor * static_cast<double>(std::cos(t)),
                 s = sign * factor * static_cast<double>(std::sin(t));
    const double a = x[i], b = x[i + R];
    x[i] = a * c - b * s;
    x[i + R] = b * c + a * s;
  }
}

struct Forward {
  Doubles q, kv;
};

Forward exact_fwd(const QkRopeCase& c, const Setup& s, const Doubles& qkv, const Doubles& wq,
                  const Doubles& wk) {
  const Shape4 z(c);
  Forward f{Doubles(z.N * z.H * z.D), Doubles(2 * z.N * z.G * z.D)};
  for (std::size_t n = 0; n < z.N; ++n)
    for (std::size_t h = 0; h < z.H + 2 * z.G; ++h) {
      const double* x = &qkv[(n * (z.H + 2 * z.G) + h) * z.D];
      const bool is_q = h < z.H, is_v = h >= z.H + z.G;
      double* y = is_q   ? &f.q[(n * z.H + h) * z.D]
                  : is_v ? &f.kv[((z.N + n) * z.G + h - z.H - z.G) * z.D]
                         : &f.kv[(n * z.G + h - z.H) * z.D];
      const Doubles& w = is_q ? wq : wk;
      const bool norm = !is_v && !w.empty();
      const double r = norm ? rstd_of(x, z.D) : 1.0;
      for (std::size_t d = 0; d < z.D; ++d) y[d] = x[d] * r * (norm ? w[d] : 1.0);
      if (!is_v) rotate(y, s.positions[n], s.inv_freq, c.factor, 1);
    }
  return f;
}

struct Backward {
  Doubles dqkv, dwq, dwk;
};

Backward exact_bwd(const QkRopeCase& c, const Setup& s, const Doubles& dq, const Doubles& dkv,
                   const Doubles& qkv, const Doubles& wq, const Doubles& wk) {
  const Shape4 z(c);
  Backward b{Doubles(qkv.size()), Doubles(wq.size(), 0.0), Doubles(wk.size(), 0.0)};
  for (std::size_t n = 0; n < z.N; ++n)
    for (std::size_t h = 0; h < z.H + 2 * z.G; ++h) {
      const std::size_t at = (n * (z.H + 2 * z.G) + h) * z.D;
      const bool is_q = h < z.H, is_v = h >= z.H + z.G;
      const double* from = is_q   ? &dq[(n * z.H + h) * z.D]
                           : is_v ? &dkv[((z.N + n) * z.G + h - z.H - z.G) * z.D]
                                  : &dkv[(n * z.G + h - z.H) * z.D];
      Doubles dy(from, from + z.D);
      if (!is_v) rotate(dy.data(), s.positions[n], s.inv_freq, c.factor, -1);
      const Doubles& w = is_q ? wq : wk;
      if (!is_v && !w.empty()) {
        Doubles& dw = is_q ? b.dwq : b.dwk;
        const double r = rstd_of(&qkv[at], z.D);
        double mean = 0.0;
        for (std::size_t d = 0; d < z.D; ++d) {
          dw[d] += dy[d] * qkv[at + d] * r;
          mean += dy[d] * w[d] * qkv[at + d] * r / static_cast<double>(z.D);
        }
        for (std::size_t d = 0; d < z.D; ++d) dy[d] = r * (dy[d] * w[d] - qkv[at + d] * r * mean);
      }
      for (std::size_t d = 0; d < z.D; ++d) b.dqkv[at + d] = dy[d];
    }
  return b;
}

struct Inputs {
  Floats qkv, wq, wk, dq, dkv;
  Inputs(const QkRopeCase& c, DType T, DType gradient)
      : qkv(random_values(T, 1, {c.N, c.H + 2 * c.G, c.D})),
        wq(random_values(T, 2, c.q_norm ? c.D : 0)),
        wk(random_values(T, 3, c.k_norm ? c.D : 0)),
        dq(random_values(gradient, 4, {c.N, c.H, c.D})),
        dkv(random_values(gradient, 5, {2, c.N, c.G, c.D})) {}
};

}  // namespace

BOOST_AUTO_TEST_SUITE(ops)

BOOST_AUTO_TEST_CASE(qk_rope_fwd_is_right_far_out) {
  for (const DType T : kTypes)
    for (const QkRopeCase& c : kQkRopeCases) {
      const Setup s(c);
      const Inputs in(c, T, T);
      const Forward exact = exact_fwd(c, s, to_doubles(in.qkv), to_doubles(in.wq), to_doubles(in.wk));
      // Angles err by 4e6 * 2^-53 rad at most, values are below 10 or so.
      hold(c.why,
           [&](Device& d) {
             QkRopeFwd a;
             a.qkv = d.in("qkv", T, {c.N, c.H + 2 * c.G, c.D}, in.qkv);
             if (c.q_norm) a.q_norm = d.in("q_norm", T, {c.D}, in.wq);
             if (c.k_norm) a.k_norm = d.in("k_norm", T, {c.D}, in.wk);
             a.positions = d.in("positions", {c.N}, s.positions);
             a.inv_freq = d.in("inv_freq", {c.R}, s.inv_freq);
             a.q = d.out("q", T, {c.N, c.H, c.D});
             a.kv = d.out("kv", T, {2, c.N, c.G, c.D});
             a.factor = c.factor;
             a.eps = kEps;
             d.ops().qk_rope_fwd(Lane::compute, a);
             return std::vector{a.q, a.kv};
           },
           {rounded_once("q", T, exact.q, 1e-8), rounded_once("kv", T, exact.kv, 1e-8)});
    }
}

BOOST_AUTO_TEST_CASE(qk_rope_bwd_takes_f32_and_narrow_gradients) {
  struct Types {
    DType T, gradient;
  };
  for (const auto& [T, gradient] :
       {Types{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
    for (const QkRopeCase& c : kQkRopeCases)
      for (const bool in_place : {false, true}) {
        const Setup s(c);
        const Inputs in(c, T, gradient);
        const Backward exact = exact_bwd(c, s, to_doubles(in.dq), to_doubles(in.dkv), to_doubles(in.qkv),
                                         to_doubles(in.wq), to_doubles(in.wk));
        std::vector<Expected> expected{rounded_once("dqkv", T, exact.dqkv, 1e-7)};
        const auto plus_half = [](Doubles x) {
          for (double& v : x) v += 0.5;
          return x;
        };
        if (c.q_norm) expected.push_back(rounded_once("dq_norm", DType::f32, plus_half(exact.dwq), 1e-7));
        if (c.k_norm) expected.push_back(rounded_once("dk_norm", DType::f32, plus_half(exact.dwk), 1e-7));
        hold(
            c.why,
            [&, type = T, gradient_type = gradient](Device& d) {
              const Floats half(static_cast<std::size_t>(c.D), 0.5f);
              QkRopeBwd a;
              a.dq = d.in("dq", gradient_type, {c.N, c.H, c.D}, in.dq);
              a.dkv = d.in("dkv", gradient_type, {2, c.N, c.G, c.D}, in.dkv);
              a.qkv = d.in("qkv", type, {c.N, c.H + 2 * c.G, c.D}, in.qkv);
              a.positions = d.in("positions", {c.N}, s.positions);
              a.inv_freq = d.in("inv_freq", {c.R}, s.inv_freq);
              a.dqkv = in_place ? a.qkv : d.out("dqkv", type, {c.N, c.H + 2 * c.G, c.D});
              a.factor = c.factor;
              a.eps = kEps;
              std::vector<Tensor> outputs{a.dqkv};
              if (c.q_norm) {
                a.q_norm = d.in("q_norm", type, {c.D}, in.wq);
                outputs.push_back(a.dq_norm = d.in("dq_norm", DType::f32, {c.D}, half));
              }
              if (c.k_norm) {
                a.k_norm = d.in("k_norm", type, {c.D}, in.wk);
                outputs.push_back(a.dk_norm = d.in("dk_norm", DType::f32, {c.D}, half));
              }
              d.ops().qk_rope_bwd(Lane::compute, a);
              return outputs;
            },
            expected);
      }
}

BOOST_AUTO_TEST_CASE(qk_rope_bwd_is_the_derivative) {
  constexpr QkRopeCase c{3, 2, 1, 6, 2, true, true, 5, 1.3, "small"};
  const Setup s(c);
  const Inputs in(c, DType::f32, DType::f32);
  const Doubles qkv = to_doubles(in.qkv), wq = to_doubles(in.wq), wk = to_doubles(in.wk),
                dq = to_doubles(in.dq), dkv = to_doubles(in.dkv);
  const auto loss = [&](const Doubles& x, const Doubles& at_wq, const Doubles& at_wk) {
    const Forward f = exact_fwd(c, s, x, at_wq, at_wk);
    double sum = 0.0;
    for (std::size_t i = 0; i < f.q.size(); ++i) sum += f.q[i] * dq[i];
    for (std::size_t i = 0; i < f.kv.size(); ++i) sum += f.kv[i] * dkv[i];
    return sum;
  };
  const Backward b = exact_bwd(c, s, dq, dkv, qkv, wq, wk);
  BOOST_TEST(gradient_error([&](const Doubles& x) { return loss(x, wq, wk); }, qkv, b.dqkv) < 1e-8);
  BOOST_TEST(gradient_error([&](const Doubles& w) { return loss(qkv, w, wk); }, wq, b.dwq) < 1e-8);
  BOOST_TEST(gradient_error([&](const Doubles& w) { return loss(qkv, wq, w); }, wk, b.dwk) < 1e-8);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace annulus::test
