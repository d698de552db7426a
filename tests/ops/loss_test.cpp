#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include "core/rng.h"
#include "ops/loss_cases.h"
#include "support/judge.h"

namespace annulus::test {
namespace {

struct Answer {
  Doubles gradient, nll, hit, entropy;
  Doubles below;  // logit minus the row's largest: the exponent, whose rounding the gradient inherits
};

Answer exact(const Doubles& z, const std::vector<std::int32_t>& targets, std::size_t V, double scale) {
  const std::size_t N = targets.size();
  Answer a{Doubles(N * V, 0.0), Doubles(N, 0.0), Doubles(N, 0.0), Doubles(N, 0.0), Doubles(N * V, 0.0)};
  for (std::size_t n = 0; n < N; ++n) {
    if (targets[n] < 0) continue;
    const double* row = &z[n * V];
    const auto target = static_cast<std::size_t>(targets[n]);
    const double* top = std::max_element(row, row + V);
    double sum = 0.0;
    for (std::size_t v = 0; v < V; ++v) sum += std::exp(row[v] - *top);
    const double lse = *top + std::log(sum);
    a.nll[n] = std::log(sum) + (*top - row[target]);
    a.hit[n] = top == row + target ? 1.0 : 0.0;
    for (std::size_t v = 0; v < V; ++v) {
      const double p = std::exp(row[v] - lse);
      if (p > 0.0) a.entropy[n] -= p * (row[v] - lse);
      a.gradient[n * V + v] = scale * (p - (v == target ? 1.0 : 0.0));
      a.below[n * V + v] = row[v] - *top;
    }
  }
  return a;
}

/// Every third row has no target; row 1's target is its largest logit.
std::vector<std::int32_t> targets_of(const LossCase& c, const Floats& z) {
  std::vector<std::int32_t> targets;
  for (std::int64_t n = 0; n < c.N; ++n) {
    const auto row = z.begin() + n * c.V;
    if (n % 3 == 2)
      targets.push_back(n % 2 == 0 ? -1 : -100);
    else if (n == 1)
      targets.push_back(static_cast<std::int32_t>(std::max_element(row, row + c.V) - row));
    else
      targets.push_back(static_cast<std::int32_t>(draw(9, Draw::test, 0, static_cast<std::uint64_t>(n))[0] %
                                                  static_cast<std::uint64_t>(c.V)));
  }
  return targets;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(ops)

BOOST_AUTO_TEST_CASE(loss_tile_gives_loss_and_gradient) {
  for (const DType T : kTypes)
    for (const LossCase& c : kLossCases)
      for (const bool metrics : {true, false}) {
        const Floats z = random_values(T, 1, {c.N, c.V}, c.spread);
        const auto targets = targets_of(c, z);
        const Answer want = exact(to_doubles(z), targets, static_cast<std::size_t>(c.V), c.scale);
        // e^x errs by 3 half-ulps and by those of x; with p = e^x / sum, x e^x stays below 1.
        const auto p_slack = [&](std::size_t i) {
          const double below = std::abs(want.below[i]);
          return c.scale * kF32 * (1 + std::min(below, 90.0)) * 8 * std::min(1.0, std::exp(-below) + 1e-12) +
                 1e-38;
        };
        std::vector<Expected> expected{rounded_once("gradient", T, want.gradient, p_slack),
                                       rounded_once("nll", DType::f32, want.nll, 8 * kF32)};
        if (metrics) {
          expected.push_back({"hit", want.hit, Doubles(want.hit.size(), 0.0)});
          expected.push_back(rounded_once("entropy", DType::f32, want.entropy, 16 * kF32));
        }
        hold(
            c.why,
            [&](Device& d) {
              LossTile a;
              a.logits = d.in("logits", T, {c.N, c.V}, z);
              a.targets = d.in("targets", {c.N}, targets);
              a.nll = d.out("nll", DType::f32, {c.N});
              if (metrics) {
                a.hit = d.out("hit", DType::f32, {c.N});
                a.entropy = d.out("entropy", DType::f32, {c.N});
              }
              a.scale = c.scale;
              d.ops().loss_tile(Lane::compute, a);
              return metrics ? std::vector{a.logits, a.nll, a.hit, a.entropy} : std::vector{a.logits, a.nll};
            },
            expected);
      }
}

BOOST_AUTO_TEST_CASE(loss_tile_takes_the_first_of_equal_logits_as_hit) {
  const std::vector<std::int32_t> targets{1, 3};
  hold("ties",
       [&](Device& d) {
         LossTile a;
         a.logits = d.in("logits", DType::f32, {2, 4}, {0, 2, 1, 2, 0, 2, 1, 2});
         a.targets = d.in("targets", {2}, targets);
         a.nll = d.out("nll", DType::f32, {2});
         a.hit = d.out("hit", DType::f32, {2});
         d.ops().loss_tile(Lane::compute, a);
         return std::vector{a.hit};
       },
       {{"hit", {1.0, 0.0}, {0.0, 0.0}}});
}

BOOST_AUTO_TEST_CASE(loss_gradient_is_the_derivative) {
  constexpr std::size_t V = 13;
  const Doubles z = to_doubles(random_values(DType::f32, 1, 3 * V));
  const std::vector<std::int32_t> targets{4, -1, 12};
  const auto loss = [&](const Doubles& at) {
    double sum = 0.0;
    for (const double nll : exact(at, targets, V, 1.0).nll) sum += 0.7 * nll;
    return sum;
  };
  BOOST_TEST(gradient_error(loss, z, exact(z, targets, V, 0.7).gradient) < 1e-8);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace annulus::test
