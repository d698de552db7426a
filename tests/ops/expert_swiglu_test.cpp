#include <boost/test/unit_test.hpp>
#include <cmath>
#include "ops/swiglu_cases.h"
#include "support/judge.h"

namespace annulus::test {
namespace {

double sigmoid(double g) {
  return 1.0 / (1.0 + std::exp(-g));
}

/// h, dshare and dgu; `size` is the sum of the absolute values that make up each.
struct Answer {
  Doubles h, dshare, dshare_size, dgu, dgu_size;
};

Answer exact(const Doubles& gu, const Doubles& dh, const Doubles& share, std::size_t F) {
  const std::size_t P = share.size();
  Answer a{Doubles(P * F), Doubles(P, 0.0), Doubles(P, 0.0), Doubles(2 * P * F), Doubles(2 * P * F)};
  for (std::size_t p = 0; p < P; ++p)
    for (std::size_t f = 0; f < F; ++f) {
      const std::size_t g_at = p * 2 * F + f, u_at = g_at + F, at = p * F + f;
      const double g = gu[g_at], u = gu[u_at], s = sigmoid(g);
      a.h[at] = share[p] * g * s * u;
      a.dshare[p] += dh[at] * g * s * u;
      a.dshare_size[p] += std::abs(dh[at] * g * s * u);
      a.dgu[g_at] = share[p] * dh[at] * u * s * (1 + g * (1 - s));
      a.dgu[u_at] = share[p] * dh[at] * g * s;
      a.dgu_size[g_at] = std::abs(share[p] * dh[at] * u) * (1 + std::abs(g));  // 1 - s cancels
      a.dgu_size[u_at] = std::abs(a.dgu[u_at]);
    }
  return a;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(ops)

BOOST_AUTO_TEST_CASE(expert_swiglu_bwd_weighs_by_share) {
  for (const DType T : kTypes)
    for (const SwigluCase& c : kSwigluCases)
      for (const bool in_place : {false, true})
        for (const bool with_h : {false, true}) {
          const Floats gu = random_values(T, 1, {c.N, 2 * c.F}, c.spread),
                       dh = random_values(T, 2, {c.N, c.F});
          Floats share = random_values(DType::f32, 3, c.N);
          if (c.N > 2) share[2] = 0.f;
          const Answer want =
              exact(to_doubles(gu), to_doubles(dh), to_doubles(share), static_cast<std::size_t>(c.F));
          // The sigmoid is good to 5 half-ulps of f32, each product adds one; below e^-87 it is 0.
          const auto slack = [](const Doubles& size) {
            return [&size](std::size_t i) { return 10 * kF32 * size[i] + 1e-30; };
          };
          std::vector<Expected> expected{
              rounded_once("dgu", T, want.dgu, slack(want.dgu_size)),
              rounded_once("dshare", DType::f32, want.dshare, slack(want.dshare_size))};
          const Doubles h_size = [&] {
            Doubles size = want.h;
            for (double& v : size) v = std::abs(v);
            return size;
          }();
          if (with_h) expected.push_back(rounded_once("h", T, want.h, slack(h_size)));
          hold(
              c.why,
              [&](Device& d) {
                ExpertSwigluBwd a;
                a.gu = d.in("gu", T, {c.N, 2 * c.F}, gu);
                a.dh = d.in("dh", T, {c.N, c.F}, dh);
                a.share = d.in("share", DType::f32, {c.N}, share);
                if (with_h) a.h = in_place ? a.dh : d.out("h", T, {c.N, c.F});
                a.dshare = d.out("dshare", DType::f32, {c.N});
                a.dgu = in_place ? a.gu : d.out("dgu", T, {c.N, 2 * c.F});
                d.ops().expert_swiglu_bwd(Lane::compute, a);
                return with_h ? std::vector{a.dgu, a.dshare, a.h} : std::vector{a.dgu, a.dshare};
              },
              expected);
        }
}

BOOST_AUTO_TEST_CASE(expert_swiglu_bwd_is_the_derivative) {
  constexpr std::size_t P = 3, F = 5;
  const Doubles gu = to_doubles(random_values(DType::f32, 1, 2 * P * F)),
                dh = to_doubles(random_values(DType::f32, 2, P * F)),
                share = to_doubles(random_values(DType::f32, 3, P));
  const auto loss = [&](const Doubles& at_gu, const Doubles& at_share) {
    const Doubles h = exact(at_gu, dh, at_share, F).h;
    double sum = 0.0;
    for (std::size_t i = 0; i < h.size(); ++i) sum += h[i] * dh[i];
    return sum;
  };
  const Answer want = exact(gu, dh, share, F);
  BOOST_TEST(gradient_error([&](const Doubles& at) { return loss(at, share); }, gu, want.dgu) < 1e-8);
  BOOST_TEST(gradient_error([&](const Doubles& at) { return loss(gu, at); }, share, want.dshare) < 1e-8);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace annulus::test
