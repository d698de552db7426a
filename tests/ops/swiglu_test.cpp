#include <boost/test/unit_test.hpp>
#include <cmath>
#include "ops/swiglu_cases.h"
#include "support/judge.h"

namespace annulus::test {
namespace {

double sigmoid(double g) {
  return 1.0 / (1.0 + std::exp(-g));
}

Doubles exact_fwd(const Doubles& gu, std::size_t F) {
  Doubles h(gu.size() / 2);
  for (std::size_t i = 0; i < h.size(); ++i) {
    const double g = gu[i / F * 2 * F + i % F], u = gu[i / F * 2 * F + F + i % F];
    h[i] = g * sigmoid(g) * u;
  }
  return h;
}

Doubles exact_bwd(const Doubles& gu, const Doubles& dh, std::size_t F) {
  Doubles dgu(gu.size());
  for (std::size_t i = 0; i < dh.size(); ++i) {
    const std::size_t at = i / F * 2 * F + i % F;
    const double g = gu[at], s = sigmoid(g);
    dgu[at] = dh[i] * gu[at + F] * s * (1 + g * (1 - s));
    dgu[at + F] = dh[i] * g * s;
  }
  return dgu;
}

/// The sigmoid is good to 5 half-ulps of f32; below e^-87 it is 0.
double slack(double value) {
  return 8 * kF32 * std::abs(value) + 1e-30;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(ops)

BOOST_AUTO_TEST_CASE(swiglu_fwd_is_right_in_the_tails) {
  for (const DType T : kTypes)
    for (const SwigluCase& c : kSwigluCases) {
      const Floats gu = random_values(T, 1, {c.N, 2 * c.F}, c.spread);
      const Doubles h = exact_fwd(to_doubles(gu), static_cast<std::size_t>(c.F));
      hold(c.why,
           [&](Device& d) {
             const Tensor out = d.out("h", T, {c.N, c.F});
             d.ops().swiglu_fwd(Lane::compute, {.gu = d.in("gu", T, {c.N, 2 * c.F}, gu), .h = out});
             return std::vector{out};
           },
           {rounded_once("h", T, h, [&](std::size_t i) { return slack(h[i]); })});
    }
}

BOOST_AUTO_TEST_CASE(swiglu_bwd_may_overwrite_its_inputs) {
  for (const DType T : kTypes)
    for (const SwigluCase& c : kSwigluCases)
      for (const bool in_place : {false, true}) {
        const auto F = static_cast<std::size_t>(c.F);
        const Floats gu = random_values(T, 1, {c.N, 2 * c.F}, c.spread), dh = random_values(T, 2, {c.N, c.F});
        const Doubles h = exact_fwd(to_doubles(gu), F), dgu = exact_bwd(to_doubles(gu), to_doubles(dh), F);
        const auto dgu_slack = [&](std::size_t i) {  // 1 - s and 1 + g (1 - s) cancel
          const std::size_t n = i / (2 * F), f = i % F, g = n * 2 * F + f;
          return slack(dh[n * F + f] * (std::abs(gu[g]) + std::abs(gu[g + F]) * (1.0 + std::abs(gu[g]))));
        };
        std::vector<Expected> expected{rounded_once("dgu", T, dgu, dgu_slack)};
        if (in_place) expected.push_back(rounded_once("h", T, h, [&](std::size_t i) { return slack(h[i]); }));
        hold(
            c.why,
            [&](Device& d) {
              SwigluBwd a;
              a.gu = d.in("gu", T, {c.N, 2 * c.F}, gu);
              a.dh = d.in("dh", T, {c.N, c.F}, dh);
              if (in_place) a.h = a.dh;
              a.dgu = in_place ? a.gu : d.out("dgu", T, {c.N, 2 * c.F});
              d.ops().swiglu_bwd(Lane::compute, a);
              return in_place ? std::vector{a.dgu, a.h} : std::vector{a.dgu};
            },
            expected);
      }
}

BOOST_AUTO_TEST_CASE(swiglu_bwd_is_the_derivative) {
  constexpr std::size_t F = 5;
  const Doubles gu = to_doubles(random_values(DType::f32, 1, 2 * 3 * F)),
                dh = to_doubles(random_values(DType::f32, 2, 3 * F));
  const auto loss = [&](const Doubles& at) {
    const Doubles h = exact_fwd(at, F);
    double sum = 0.0;
    for (std::size_t i = 0; i < h.size(); ++i) sum += h[i] * dh[i];
    return sum;
  };
  BOOST_TEST(gradient_error(loss, gu, exact_bwd(gu, dh, F)) < 1e-8);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace annulus::test
