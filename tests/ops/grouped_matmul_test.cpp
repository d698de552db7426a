#include <boost/test/unit_test.hpp>
#include <cmath>
#include <numeric>
#include "ops/grouped_matmul_cases.h"
#include "support/backends.h"
#include "support/judge.h"

namespace annulus::test {
namespace {

// Sums in f32, in any order, err by far less than half-ulps of the terms times their number: measured 0.6 of
// this.
constexpr double kSumError = 8 * kF32;

struct Shape3 {
  std::size_t P, X, N, K;
  std::vector<std::int64_t> offsets;
};

Shape3 shape_of(const GroupedMatmulCase& c) {
  Shape3 s{static_cast<std::size_t>(c.before),
           c.rows.size(),
           static_cast<std::size_t>(c.N),
           static_cast<std::size_t>(c.K),
           {c.before}};
  for (const std::int64_t rows : c.rows) s.offsets.push_back(s.offsets.back() + rows);
  s.P = static_cast<std::size_t>(s.offsets.back() + c.after);
  return s;
}

struct Answer {
  Doubles c, magnitude;  // the sum, and the sum of absolute values

  void plus(std::size_t i, double v) {
    c[i] += v;
    magnitude[i] += std::abs(v);
  }
};

constexpr double kScale = 7.0 / 3;

/// Rows of nobody keep what is in `before`. `add`: the product is scaled, and added to it.
Answer exact_rows(const Shape3& s, const Floats& a, const Floats& b, const Floats& before, bool trans_b,
                  bool add) {
  Answer r{to_doubles(before), Doubles(before.size(), 0.0)};
  for (std::size_t e = 0; e < s.X; ++e)
    for (auto p = static_cast<std::size_t>(s.offsets[e]); p < static_cast<std::size_t>(s.offsets[e + 1]); ++p)
      for (std::size_t n = 0; n < s.N; ++n) {
        const std::size_t i = p * s.N + n;
        r.c[i] = add ? double(before[i]) : 0.0;
        r.magnitude[i] = std::abs(r.c[i]);
        for (std::size_t k = 0; k < s.K; ++k)
          r.plus(i, (add ? kScale : 1.0) * a[p * s.K + k] *
                        b[trans_b ? (e * s.N + n) * s.K + k : (e * s.K + k) * s.N + n]);
      }
  return r;
}

Answer exact_gradient(const Shape3& s, const Floats& a, const Floats& b, const Floats& before, double scale) {
  Answer r{to_doubles(before), to_doubles(before)};
  for (double& v : r.magnitude) v = std::abs(v);
  for (std::size_t e = 0; e < s.X; ++e)
    for (auto p = static_cast<std::size_t>(s.offsets[e]); p < static_cast<std::size_t>(s.offsets[e + 1]); ++p)
      for (std::size_t k = 0; k < s.K; ++k)
        for (std::size_t n = 0; n < s.N; ++n)
          r.plus((e * s.K + k) * s.N + n, scale * a[p * s.K + k] * b[p * s.N + n]);
  return r;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(ops)

BOOST_AUTO_TEST_CASE(grouped_matmul_of_rows_and_matrices) {
  for (const DType T : kTypes)
    for (const GroupedMatmulCase& c : grouped_matmul_cases())
      for (const auto& [trans_b, add] :
           {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
        const Shape3 s = shape_of(c);
        const auto P = static_cast<std::int64_t>(s.P), X = static_cast<std::int64_t>(s.X);
        const Floats a = random_values(T, 1, {P, c.K}), b = random_values(T, 2, {X, c.N, c.K}),
                     before = random_values(T, 3, {P, c.N});
        const Answer want = exact_rows(s, a, b, before, trans_b, add);
        hold(c.why,
             [&, trans = trans_b, adds = add](Device& d) {
               GroupedMatmul m;
               m.a = d.in("a", T, {P, c.K}, a);
               m.b = trans ? d.in("b", T, {X, c.N, c.K}, b) : d.in("b", T, {X, c.K, c.N}, b);
               m.c = d.in("c", T, {P, c.N}, before);
               m.offsets = s.offsets;
               m.trans_b = trans;
               m.add = adds;
               m.scale = adds ? kScale : 1.0;
               d.ops().grouped_matmul(Lane::compute, m);
               return std::vector{m.c};
             },
             {rounded_once("c", T, want.c, [&](std::size_t i) { return kSumError * want.magnitude[i]; })});
      }
}

BOOST_AUTO_TEST_CASE(grouped_matmul_adds_weight_gradients) {
  for (const DType T : kTypes)
    for (const GroupedMatmulCase& c : grouped_matmul_cases()) {
      const double scale = c.K % 2 == 0 ? 1.0 : kScale;
      const Shape3 s = shape_of(c);
      const auto P = static_cast<std::int64_t>(s.P), X = static_cast<std::int64_t>(s.X);
      const Floats a = random_values(T, 1, {P, c.K}), b = random_values(T, 2, {P, c.N}),
                   before = random_values(DType::f32, 3, {X, c.K, c.N});
      const Answer want = exact_gradient(s, a, b, before, scale);
      hold(c.why,
           [&](Device& d) {
             GroupedMatmul m;
             m.a = d.in("a", T, {P, c.K}, a);
             m.b = d.in("b", T, {P, c.N}, b);
             m.c = d.in("c", DType::f32, {X, c.K, c.N}, before);
             m.offsets = s.offsets;
             m.gradient = true;
             m.scale = scale;
             d.ops().grouped_matmul(Lane::compute, m);
             return std::vector{m.c};
           },
           {rounded_once("c", DType::f32, want.c,
                         [&](std::size_t i) { return kSumError * want.magnitude[i]; })});
    }
}

BOOST_AUTO_TEST_CASE(mixture_of_experts_operations_refuse_what_their_description_excludes) {
  using Offsets = std::vector<std::int64_t>;
  for (const auto& [name, backend] : backends()) {
    Device d(*backend);
    const auto refuses = [&](auto&& call) { BOOST_CHECK_THROW(call(d.ops()), Error); };
    const Tensor x = d.out("x", DType::f32, {4, 3}), w = d.out("w", DType::f32, {2, 3, 5}),
                 y = d.out("y", DType::f32, {4, 5}), low = d.out("low", DType::bf16, {4, 5});
    const auto product = [&](const Tensor& c, const Offsets& offsets, bool trans_b = false) {
      refuses([&](Ops& o) {
        o.grouped_matmul(Lane::compute, {.a = x, .b = w, .c = c, .offsets = offsets, .trans_b = trans_b});
      });
    };
    product(y, {0, 4});       // as many offsets as experts
    product(y, {0, 3, 2});    // decrease
    product(y, {0, 2, 5});    // beyond the rows
    product(y, {-1, 2, 4});   // before them
    product(low, {0, 2, 4});  // c is not in the compute type
    product(y, {0, 2, 4}, true);
    const Offsets fine{0, 2, 4};
    refuses([&](Ops& o) {  // a gradient is always added
      o.grouped_matmul(Lane::compute, {.a = x,
                                       .b = y,
                                       .c = d.out("c", DType::f32, {2, 3, 5}),
                                       .offsets = fine,
                                       .gradient = true,
                                       .add = true});
    });
    refuses([&](Ops& o) {  // gradients are f32
      o.grouped_matmul(
          Lane::compute,
          {.a = x, .b = y, .c = d.out("c", DType::bf16, {2, 3, 5}), .offsets = fine, .gradient = true});
    });

    RouteFwd route;
    route.logits = x;
    route.valid = d.out("valid", DType::i32, {4});
    route.ids = d.out("ids", DType::i32, {4, 4});  // four of three experts
    route.weights = d.out("weights", DType::f32, {4, 4});
    refuses([&](Ops& o) { o.route_fwd(Lane::compute, route); });
    RouteCount count;
    count.ids = route.ids;
    count.experts = d.out("experts", DType::i64, {2, 5});
    count.rows = d.out("rows", DType::i64, {2, 2});
    count.range = 2;
    refuses([&](Ops& o) { o.route_count(Lane::compute, count); });  // two ranks for five experts
    count.rows = d.out("rows", DType::i64, {2, 1});
    count.range = 0;
    refuses([&](Ops& o) { o.route_count(Lane::compute, count); });
    refuses([&](Ops& o) { o.gather_rows(Lane::compute, {.x = x, .index = route.valid, .y = y}); });
    refuses([&](Ops& o) { o.combine_rows(Lane::compute, {.x = x, .index = route.ids, .y = y}); });
    BOOST_TEST(d.intact(), name);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace annulus::test
