#include <boost/test/unit_test.hpp>
#include <cmath>
#include "ops/rmsnorm_cases.h"
#include "support/judge.h"

namespace annulus::test {
namespace {

constexpr double kEps = 1e-5;

struct Forward {
  Doubles y, rstd;
};

Forward exact_fwd(const Doubles& x, const Doubles& w) {
  const std::size_t C = w.size(), N = x.size() / C;
  Forward f{Doubles(x.size()), Doubles(N)};
  for (std::size_t n = 0; n < N; ++n) {
    double squares = 0.0;
    for (std::size_t c = 0; c < C; ++c) squares += x[n * C + c] * x[n * C + c];
    f.rstd[n] = 1.0 / std::sqrt(squares / static_cast<double>(C) + kEps);
    for (std::size_t c = 0; c < C; ++c) f.y[n * C + c] = x[n * C + c] * f.rstd[n] * w[c];
  }
  return f;
}

struct Backward {
  Doubles dx, dw;
};

Backward exact_bwd(const Doubles& dy, const Doubles& x, const Doubles& w, const Doubles& rstd) {
  const std::size_t C = w.size(), N = rstd.size();
  Backward b{Doubles(x.size()), Doubles(C, 0.0)};
  for (std::size_t n = 0; n < N; ++n) {
    double mean = 0.0;
    for (std::size_t c = 0; c < C; ++c) {
      const std::size_t i = n * C + c;
      b.dw[c] += dy[i] * x[i] * rstd[n];
      mean += dy[i] * w[c] * x[i] * rstd[n] / static_cast<double>(C);
    }
    for (std::size_t c = 0; c < C; ++c) {
      const std::size_t i = n * C + c;
      b.dx[i] = rstd[n] * (dy[i] * w[c] - x[i] * rstd[n] * mean);
    }
  }
  return b;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(ops)

BOOST_AUTO_TEST_CASE(rmsnorm_fwd_rounds_once) {
  for (const DType T : kTypes)
    for (const RmsNormCase& c : kRmsNormCases) {
      const Floats x = random_values(T, 1, {c.N, c.C}, 3.0), w = random_values(T, 2, c.C);
      const Forward exact = exact_fwd(to_doubles(x), to_doubles(w));
      for (const bool in_place : {false, true})
        hold(c.why,
             [&](Device& d) {
               const Tensor in = d.in("x", T, {c.N, c.C}, x), rstd = d.out("rstd", DType::f32, {c.N});
               const Tensor y = in_place ? in : d.out("y", T, {c.N, c.C});
               d.ops().rmsnorm_fwd(Lane::compute,
                                   {.x = in, .w = d.in("w", T, {c.C}, w), .y = y, .rstd = rstd, .eps = kEps});
               return std::vector{y, rstd};
             },
             {rounded_once("y", T, exact.y, 1e-9), rounded_once("rstd", DType::f32, exact.rstd, 1e-12)});
    }
}

BOOST_AUTO_TEST_CASE(rmsnorm_of_a_zero_row_is_zero) {
  hold("zero row",
       [](Device& d) {
         const Tensor y = d.out("y", DType::f32, {1, 5}), rstd = d.out("rstd", DType::f32, {1});
         d.ops().rmsnorm_fwd(Lane::compute, {.x = d.in("x", DType::f32, {1, 5}, Floats(5, 0.f)),
                                             .w = d.in("w", DType::f32, {5}, Floats(5, 1.f)),
                                             .y = y,
                                             .rstd = rstd,
                                             .eps = kEps});
         return std::vector{y, rstd};
       },
       {rounded_once("y", DType::f32, Doubles(5, 0.0)),
        rounded_once("rstd", DType::f32, {1.0 / std::sqrt(kEps)}, 1e-9)});
}

BOOST_AUTO_TEST_CASE(rmsnorm_bwd_adds_what_goes_round) {
  enum Alias { none, dx_is_dy, dx_is_dres, no_dres_no_dw };
  for (const DType T : kTypes)
    for (const RmsNormCase& c : kRmsNormCases)
      for (const Alias alias : {none, dx_is_dy, dx_is_dres, no_dres_no_dw}) {
        const Floats x = random_values(T, 1, {c.N, c.C}, 3.0), w = random_values(T, 2, c.C);
        const Floats dy = random_values(T, 3, {c.N, c.C}), dres = random_values(T, 4, {c.N, c.C});
        const Floats dw0 = random_values(DType::f32, 5, c.C);
        const Floats rstd = to_floats(exact_fwd(to_doubles(x), to_doubles(w)).rstd);
        Backward exact = exact_bwd(to_doubles(dy), to_doubles(x), to_doubles(w), to_doubles(rstd));
        for (std::size_t i = 0; i < x.size() && alias != no_dres_no_dw; ++i) exact.dx[i] += dres[i];
        for (std::size_t k = 0; k < dw0.size(); ++k) exact.dw[k] += dw0[k];
        const auto cancelled = [&](std::size_t i) {  // two terms of this size are subtracted
          const std::size_t C = w.size();
          return 2 * kF32 * std::abs(double(dy[i]) * w[i % C] * rstd[i / C]) + 1e-9;
        };
        std::vector<Expected> expected{rounded_once("dx", T, exact.dx, cancelled)};
        if (alias != no_dres_no_dw) expected.push_back(rounded_once("dw", DType::f32, exact.dw, 1e-9));
        hold(
            c.why,
            [&](Device& d) {
              RmsNormBwd a;
              a.dy = d.in("dy", T, {c.N, c.C}, dy);
              a.x = d.in("x", T, {c.N, c.C}, x);
              a.w = d.in("w", T, {c.C}, w);
              a.rstd = d.in("rstd", DType::f32, {c.N}, rstd);
              if (alias != no_dres_no_dw) {
                a.dres = d.in("dres", T, {c.N, c.C}, dres);
                a.dw = d.in("dw", DType::f32, {c.C}, dw0);
              }
              a.dx = alias == dx_is_dy ? a.dy : alias == dx_is_dres ? a.dres : d.out("dx", T, {c.N, c.C});
              d.ops().rmsnorm_bwd(Lane::compute, a);
              return a.dw ? std::vector{a.dx, a.dw} : std::vector{a.dx};
            },
            expected);
      }
}

BOOST_AUTO_TEST_CASE(rmsnorm_bwd_is_the_derivative) {
  const Doubles x = to_doubles(random_values(DType::f32, 1, 3 * 7)),
                w = to_doubles(random_values(DType::f32, 2, 7));
  const Doubles dy = to_doubles(random_values(DType::f32, 3, 3 * 7));
  const auto loss = [&](const Doubles& at_x, const Doubles& at_w) {
    const Doubles y = exact_fwd(at_x, at_w).y;
    double sum = 0.0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  };
  const Backward b = exact_bwd(dy, x, w, exact_fwd(x, w).rstd);
  BOOST_TEST(gradient_error([&](const Doubles& at) { return loss(at, w); }, x, b.dx) < 1e-8);
  BOOST_TEST(gradient_error([&](const Doubles& at) { return loss(x, at); }, w, b.dw) < 1e-8);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace annulus::test
