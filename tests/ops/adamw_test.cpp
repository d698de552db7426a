#include <boost/test/unit_test.hpp>
#include <cmath>
#include "core/bf16.h"
#include "ops/adamw_cases.h"
#include "support/backends.h"
#include "support/judge.h"

namespace annulus::test {
namespace {

/// AdamW written down again, one element, from the paper.
struct Element {
  double w, m = 0.0, v = 0.0;
  void step(const AdamWCase& c, double gradient, int t) {
    const double g = gradient * c.grad_scale;
    m = c.beta1 * m + (1 - c.beta1) * g;
    v = c.beta2 * v + (1 - c.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(c.beta1, t)), v_hat = v / (1 - std::pow(c.beta2, t));
    w -= c.lr * c.decay * w;
    w -= c.lr * m_hat / (std::sqrt(v_hat) + c.eps);
  }
};

AdamW call_of(const AdamWCase& c, std::int64_t step) {
  AdamW a;
  a.lr = c.lr;
  a.beta1 = c.beta1;
  a.beta2 = c.beta2;
  a.eps = c.eps;
  a.decay = c.decay;
  a.grad_scale = c.grad_scale;
  a.step = step;
  a.seed = 77;
  a.parameter = 5;
  return a;
}

/// One step of bf16 state for elements [from, from + n) of `w`, `g`; moments as given.
std::vector<Floats> bf16_step(Device& d, const Floats& w, const Floats& g, std::int64_t from,
                              std::int64_t n) {
  const auto part = [&](const Floats& x) { return Floats(x.begin() + from, x.begin() + from + n); };
  AdamW a = call_of({0, 1e-3, 0.9, 0.999, 1e-8, 0.1, 1.0, ""}, 3);
  a.grad = d.in("grad", DType::f32, {n}, part(g));
  a.master = d.in("master", DType::bf16, {n}, part(w));
  a.m = d.in("m", DType::bf16, {n}, part(g));
  Floats squares = part(g);
  for (float& v : squares) v *= v;
  a.v = d.in("v", DType::bf16, {n}, squares);
  a.from = from;
  d.ops().adamw(Lane::compute, a);
  BOOST_TEST(d.intact());
  return {d.floats(a.master), d.floats(a.m), d.floats(a.v)};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(ops)

BOOST_AUTO_TEST_CASE(adamw_follows_the_paper_for_20_steps) {
  constexpr int kSteps = 20;
  for (const DType G : kTypes)
    for (const DType T : kTypes)
      for (const AdamWCase& c : kAdamWCases) {
        const Floats w = random_values(DType::f32, 1, c.n);
        std::vector<Element> elements;
        for (const float v : w) elements.push_back({v});
        for (int t = 1; t <= kSteps; ++t) {
          const Floats g = random_values(G, 10 + static_cast<std::uint64_t>(t), c.n);
          for (std::size_t i = 0; i < elements.size(); ++i) elements[i].step(c, g[i], t);
        }
        Doubles want_w, want_m, want_v;
        for (const Element& e : elements) {
          want_w.push_back(e.w);
          want_m.push_back(e.m);
          want_v.push_back(e.v);
        }
        // State is rounded to f32 at each step. The weight gathers a half-ulp a step; the moments forget
        // theirs.
        const double slack = kSteps * kF32, moment_slack = 6 * kF32;
        hold(c.why,
             [&](Device& d) {
               AdamW a = call_of(c, 1);
               a.master = d.in("master", DType::f32, {c.n}, w);
               a.m = d.in("m", DType::f32, {c.n}, Floats(w.size(), 0.f));
               a.v = d.in("v", DType::f32, {c.n}, Floats(w.size(), 0.f));
               a.weight = d.out("weight", T, {c.n});
               for (; a.step <= kSteps; ++a.step) {
                 a.grad =
                     d.in("grad", G, {c.n}, random_values(G, 10 + static_cast<std::uint64_t>(a.step), c.n));
                 d.ops().adamw(Lane::compute, a);
               }
               return std::vector{a.master, a.m, a.v, a.weight};
             },
             {rounded_once("master", DType::f32, want_w, slack),
              rounded_once("m", DType::f32, want_m, moment_slack),
              rounded_once("v", DType::f32, want_v, moment_slack), rounded_once("weight", T, want_w, slack)});
      }
}

BOOST_AUTO_TEST_CASE(adamw_bf16_bits_do_not_depend_on_the_slice) {
  constexpr std::int64_t kN = 1003;
  const Floats w = random_values(DType::bf16, 1, kN), g = random_values(DType::bf16, 2, kN);
  for (const auto& [name, backend] : backends()) {
    Device whole_device(*backend);
    const auto whole = bf16_step(whole_device, w, g, 0, kN);
    for (const auto& [from, n] :
         {std::pair<std::int64_t, std::int64_t>{0, 1}, {1, 6}, {402, 601}, {1002, 1}}) {
      Device d(*backend);
      const auto part = bf16_step(d, w, g, from, n);
      for (std::size_t k = 0; k < 3; ++k)
        BOOST_TEST(part[k] == Floats(whole[k].begin() + from, whole[k].begin() + from + n),
                   boost::test_tools::per_element());
    }
    Device reference_device(cpu());
    BOOST_TEST((whole == bf16_step(reference_device, w, g, 0, kN)), name << " rounds as the CPU does");
  }
}

BOOST_AUTO_TEST_CASE(adamw_bf16_is_unbiased) {
  constexpr std::int64_t kN = 60000;
  const Floats w(kN, 1.0f), g(kN, 0.3f);
  const AdamWCase c{0, 1e-3, 0.9, 0.999, 1e-8, 0.1, 1.0, ""};
  Element e{1.0, to_floats({0.3}, DType::bf16)[0], to_floats({0.3f * 0.3f}, DType::bf16)[0]};
  e.step(c, 0.3f, 3);
  const Doubles exact{e.w, e.m, e.v};
  for (const auto& [name, backend] : backends()) {
    Device d(*backend);
    const auto got = bf16_step(d, w, g, 0, kN);
    for (std::size_t k = 0; k < 3; ++k) {
      double mean = 0.0;
      for (const float v : got[k]) mean += v / static_cast<double>(kN);
      // One rounding moves an element by less than an ulp (2^-8 just below 1): the mean's deviation is below
      // ulp / 2 / sqrt(n); five of them.
      const double ulp = std::abs(exact[k]) * 0x1p-7;
      BOOST_TEST(std::abs(mean - exact[k]) < 5 * ulp / 2 / std::sqrt(double(kN)),
                 name << ": mean of state " << k);
      BOOST_TEST(
          (*std::min_element(got[k].begin(), got[k].end()) < *std::max_element(got[k].begin(), got[k].end())),
          "rounds both ways");
    }
  }
}

BOOST_AUTO_TEST_CASE(narrow_stochastic_truncates_after_adding_noise) {
  const float between = 1.f + 0x1p-8f;  // half way from 1 to 1 + 2^-7
  BOOST_TEST(widen(narrow_stochastic(between, 0x7FFFFFFFu)) == 1.f);
  BOOST_TEST(widen(narrow_stochastic(between, 0x80000000u)) == 1.f + 0x1p-7f);
  BOOST_TEST(widen(narrow_stochastic(-between, 0x80000000u)) == -1.f - 0x1p-7f);
  BOOST_TEST(widen(narrow_stochastic(1.f, 0xFFFFFFFFu)) == 1.f);
  BOOST_TEST(widen(narrow_stochastic(0.f, 0xFFFFFFFFu)) == 0.f);
  BOOST_TEST(std::isinf(widen(narrow_stochastic(-INFINITY, 0xFFFFFFFFu))));
  BOOST_TEST(std::isnan(widen(narrow_stochastic(std::bit_cast<float>(0x7F800001u), 0u))));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace annulus::test
