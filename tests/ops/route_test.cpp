#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <numeric>
#include "core/rng.h"
#include "ops/route_cases.h"
#include "support/backends.h"
#include "support/judge.h"

namespace annulus::test {
namespace {

using Ints = std::vector<std::int32_t>;

/// A token's logits are evenly spaced and shuffled, each moved by less than a third of the space: no choice
/// is close.
Floats spaced_logits(const RouteCase& c) {
  Floats z;
  for (std::int64_t n = 0; n < c.N; ++n) {
    Ints order(static_cast<std::size_t>(c.E));
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[draw(5, Draw::test, static_cast<std::uint64_t>(n), i)[0] % i]);
    for (const std::int32_t place : order) {
      const double moved = place + 0.3 * unit_interval(draw(6, Draw::test, 0, z.size())[0]);
      z.push_back(static_cast<float>(c.spread * (moved / static_cast<double>(c.E) - 0.5)));
    }
  }
  return z;
}

/// Every fourth token is padding.
Ints validity(std::int64_t N) {
  Ints valid;
  for (std::int64_t n = 0; n < N; ++n) valid.push_back(n % 4 == 1 ? 0 : 1);
  return valid;
}

struct Answer {
  Doubles ids, weights, picked, probability;
};

Doubles softmax(const double* z, std::size_t E) {
  Doubles p(z, z + E);
  const double top = *std::max_element(p.begin(), p.end());
  double sum = 0.0;
  for (double& v : p) sum += v = std::exp(v - top);
  for (double& v : p) v /= sum;
  return p;
}

/// Choices by searching the largest again and again; `given`: those of each token instead.
Answer exact_fwd(const Doubles& z, const Ints& valid, std::size_t E, std::size_t K, bool normalize,
                 const Ints& given = {}) {
  const std::size_t N = valid.size();
  Answer a{Doubles(N * K, -1.0), Doubles(N * K, 0.0), Doubles(E, 0.0), Doubles(E, 0.0)};
  for (std::size_t n = 0; n < N; ++n) {
    if (valid[n] == 0) continue;
    const Doubles p = softmax(&z[n * E], E);
    Doubles left(z.begin() + static_cast<std::ptrdiff_t>(n * E),
                 z.begin() + static_cast<std::ptrdiff_t>((n + 1) * E));
    double sum = 0.0;
    for (std::size_t k = 0; k < K; ++k) {
      auto e = static_cast<std::size_t>(std::max_element(left.begin(), left.end()) - left.begin());
      if (!given.empty()) e = static_cast<std::size_t>(given[n * K + k]);
      left[e] = -INFINITY;
      a.ids[n * K + k] = static_cast<double>(e);
      sum += a.weights[n * K + k] = p[e];
      a.picked[e] += 1.0;
    }
    for (std::size_t k = 0; normalize && k < K; ++k) a.weights[n * K + k] /= sum;
    for (std::size_t e = 0; e < E; ++e) a.probability[e] += p[e];
  }
  return a;
}

/// With y the weights that `ids` have: dL/dz for L = sum dw y + sum over valid tokens and experts of aux p.
Doubles exact_bwd(const Doubles& z, const Ints& ids, const Doubles& dw, const Doubles& aux, std::size_t E,
                  std::size_t K, bool normalize) {
  Doubles dz(z.size(), 0.0);
  for (std::size_t n = 0; n * K < ids.size(); ++n) {
    if (ids[n * K] < 0) continue;
    const Doubles p = softmax(&z[n * E], E);
    const auto id = [&](std::size_t k) { return static_cast<std::size_t>(ids[n * K + k]); };
    double sum = 0.0;
    for (std::size_t k = 0; k < K; ++k) sum += p[id(k)];
    // One output after the other: the Jacobian of p_k (or p_k / sum) with respect to each logit.
    for (std::size_t k = 0; k < K; ++k) {
      const double y = normalize ? p[id(k)] / sum : p[id(k)];
      for (std::size_t e = 0; e < E; ++e) {
        bool chosen = false;
        for (std::size_t j = 0; j < K; ++j) chosen = chosen || id(j) == e;
        const double sure = id(k) == e ? 1.0 : 0.0;
        dz[n * E + e] += dw[n * K + k] * y * (sure - (normalize ? (chosen ? p[e] / sum : 0.0) : p[e]));
      }
    }
    for (std::size_t i = 0; !aux.empty() && i < E; ++i)
      for (std::size_t e = 0; e < E; ++e) dz[n * E + e] += aux[i] * p[i] * ((i == e ? 1.0 : 0.0) - p[e]);
  }
  return dz;
}

Ints to_ints(const Doubles& x) {
  return {x.begin(), x.end()};
}

Expected exactly(const char* name, const Doubles& values) {
  return {name, values, Doubles(values.size(), 0.0)};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(ops)

BOOST_AUTO_TEST_CASE(route_fwd_chooses_and_weighs) {
  for (const RouteCase& c : kRouteCases)
    for (const bool normalize : {false, true}) {
      const Floats z = spaced_logits(c);
      const Ints valid = validity(c.N);
      const Answer want = exact_fwd(to_doubles(z), valid, static_cast<std::size_t>(c.E),
                                    static_cast<std::size_t>(c.K), normalize);
      hold(c.why,
           [&](Device& d) {
             RouteFwd a;
             a.logits = d.in("logits", DType::f32, {c.N, c.E}, z);
             a.valid = d.in("valid", {c.N}, valid);
             a.ids = d.in("ids", {c.N, c.K}, Ints(static_cast<std::size_t>(c.N * c.K), 77));
             a.weights = d.out("weights", DType::f32, {c.N, c.K});
             a.normalize = normalize;
             d.ops().route_fwd(Lane::compute, a);
             return std::vector{a.ids, a.weights};
           },
           {exactly("ids", want.ids), rounded_once("weights", DType::f32, want.weights, 1e-15)});
    }
}

BOOST_AUTO_TEST_CASE(route_fwd_counts_for_the_auxiliary_loss) {
  for (const auto& [name, backend] : backends())
    for (const RouteCase& c : kRouteCases) {
      const Floats z = spaced_logits(c);
      const Ints valid = validity(c.N);
      const Answer want =
          exact_fwd(to_doubles(z), valid, static_cast<std::size_t>(c.E), static_cast<std::size_t>(c.K), true);
      Doubles picked[2], probability[2];
      for (int run = 0; run < 2; ++run) {
        Device d(*backend);
        RouteFwd a;
        a.logits = d.in("logits", DType::f32, {c.N, c.E}, z);
        a.valid = d.in("valid", {c.N}, valid);
        a.ids = d.out("ids", DType::i32, {c.N, c.K});
        a.weights = d.out("weights", DType::f32, {c.N, c.K});
        a.picked = d.in("picked", {c.E}, Doubles(static_cast<std::size_t>(c.E), 3.0));
        a.probability = d.in("probability", {c.E}, Doubles(static_cast<std::size_t>(c.E), 0.5));
        a.normalize = true;
        d.ops().route_fwd(Lane::compute, a);
        picked[run] = d.doubles(a.picked);
        probability[run] = d.doubles(a.probability);
        BOOST_TEST(d.intact());
      }
      // A p in f32 errs by 8 half-ulps and by those of the exponent.
      const double slack = backend == &cpu() ? 1e-14 : kF32 * (8 + c.spread);
      for (std::size_t e = 0; e < static_cast<std::size_t>(c.E); ++e) {
        BOOST_TEST(picked[0][e] == 3.0 + want.picked[e], name << ": " << c.why);
        BOOST_TEST(
            std::abs(probability[0][e] - 0.5 - want.probability[e]) <= slack * want.probability[e] + 1e-15,
            name << ": " << c.why << ": expert " << e << " has " << probability[0][e] - 0.5 << ", not "
                 << want.probability[e]);
        BOOST_TEST(probability[0][e] == probability[1][e], name << ": a second run gave other bits");
      }
    }
}

BOOST_AUTO_TEST_CASE(route_fwd_takes_the_first_of_equal_logits) {
  const float nan = std::nanf("");
  const Floats z{1,   2,   2,   1,  2,   0,    //
                 0,   0,   0,   0,  0,   0,    //
                 0,   -0., 0,   -1, -0., 0,    //
                 nan, -3,  nan, -2, -3,  -3};  // a NaN is chosen after every number
  const Doubles ids{1, 2, 4, 0, 1, 2, 0, 1, 2, 3, 1, 4};
  hold("ties",
       [&](Device& d) {
         RouteFwd a;
         a.logits = d.in("logits", DType::f32, {4, 6}, z);
         a.valid = d.in("valid", {4}, Ints{1, 1, 1, 1});
         a.ids = d.out("ids", DType::i32, {4, 3});
         a.weights = d.out("weights", DType::f32, {4, 3});
         d.ops().route_fwd(Lane::compute, a);
         return std::vector{a.ids};
       },
       {exactly("ids", ids)});
}

BOOST_AUTO_TEST_CASE(route_fwd_reuses_choices_that_were_made_before) {
  constexpr RouteCase c{9, 11, 3, 4.0, "choices of another time"};
  const Floats z = spaced_logits(c);
  const Ints valid = validity(c.N);
  Ints ids;
  for (std::int64_t n = 0; n < c.N; ++n)
    for (std::int64_t k = 0; k < c.K; ++k)
      ids.push_back(valid[static_cast<std::size_t>(n)] == 0 ? -1
                                                            : static_cast<std::int32_t>((5 * n + k) % c.E));
  for (const bool normalize : {false, true}) {
    const Answer want = exact_fwd(to_doubles(z), valid, c.E, c.K, normalize, ids);
    hold(c.why,
         [&](Device& d) {
           RouteFwd a;
           a.logits = d.in("logits", DType::f32, {c.N, c.E}, z);
           a.valid = d.in("valid", {c.N}, valid);
           a.ids = d.in("ids", {c.N, c.K}, ids);
           a.weights = d.out("weights", DType::f32, {c.N, c.K});
           a.normalize = normalize;
           a.reuse = true;
           d.ops().route_fwd(Lane::compute, a);
           return std::vector{a.ids, a.weights};
         },
         {exactly("ids", want.ids), rounded_once("weights", DType::f32, want.weights, 1e-15)});
  }
}

BOOST_AUTO_TEST_CASE(route_bwd_gives_the_gradient_of_weights_and_auxiliary_loss) {
  for (const DType T : kTypes)
    for (const RouteCase& c : kRouteCases)
      for (const bool normalize : {false, true})
        for (const bool with_aux : {false, true}) {
          const auto E = static_cast<std::size_t>(c.E), K = static_cast<std::size_t>(c.K);
          const Floats z = spaced_logits(c), dw = random_values(DType::f32, 2, {c.N, c.K});
          const Ints ids = to_ints(exact_fwd(to_doubles(z), validity(c.N), E, K, normalize).ids);
          const Doubles aux = with_aux ? to_doubles(random_values(DType::f32, 3, c.E)) : Doubles{};
          const Doubles want = exact_bwd(to_doubles(z), ids, to_doubles(dw), aux, E, K, normalize);
          // Rounded to float and then to T; the double sums cancel.
          hold(c.why,
               [&](Device& d) {
                 RouteBwd a;
                 a.logits = d.in("logits", DType::f32, {c.N, c.E}, z);
                 a.ids = d.in("ids", {c.N, c.K}, ids);
                 a.dweights = d.in("dweights", DType::f32, {c.N, c.K}, dw);
                 if (with_aux) a.aux = d.in("aux", {c.E}, aux);
                 a.dlogits = d.out("dlogits", T, {c.N, c.E});
                 a.normalize = normalize;
                 d.ops().route_bwd(Lane::compute, a);
                 return std::vector{a.dlogits};
               },
               {rounded_once("dlogits", T, want,
                             [&](std::size_t i) { return kF32 * std::abs(want[i]) + 1e-13; })});
        }
}

BOOST_AUTO_TEST_CASE(route_bwd_is_the_derivative) {
  constexpr RouteCase c{4, 7, 3, 4.0, ""};
  const Doubles z = to_doubles(spaced_logits(c)), dw = to_doubles(random_values(DType::f32, 2, {c.N, c.K})),
                aux = to_doubles(random_values(DType::f32, 3, c.E));
  const Ints valid = validity(c.N);
  for (const bool normalize : {false, true}) {
    const auto loss = [&](const Doubles& at) {
      const Answer a = exact_fwd(at, valid, c.E, c.K, normalize);
      return std::inner_product(dw.begin(), dw.end(), a.weights.begin(), 0.0) +
             std::inner_product(aux.begin(), aux.end(), a.probability.begin(), 0.0);
    };
    const Ints ids = to_ints(exact_fwd(z, valid, c.E, c.K, normalize).ids);
    BOOST_TEST(gradient_error(loss, z, exact_bwd(z, ids, dw, aux, c.E, c.K, normalize)) < 1e-8);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace annulus::test
