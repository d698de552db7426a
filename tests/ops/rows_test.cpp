#include <boost/test/unit_test.hpp>
#include <cmath>
#include "core/rng.h"
#include "ops/rows_cases.h"
#include "support/backends.h"
#include "support/judge.h"

namespace annulus::test {
namespace {

using Ints = std::vector<std::int32_t>;

/// Rows below `rows`, each third one none.
Ints random_rows(std::int64_t count, std::int64_t rows) {
  Ints index;
  for (std::int64_t i = 0; i < count; ++i)
    index.push_back(rows == 0 || i % 3 == 2
                        ? -1
                        : static_cast<std::int32_t>(draw(8, Draw::test, 0, static_cast<std::uint64_t>(i))[0] %
                                                    static_cast<std::uint64_t>(rows)));
  return index;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(ops)

BOOST_AUTO_TEST_CASE(gather_rows_copies_bits) {
  for (const DType T : {DType::f32, DType::bf16, DType::i32})
    for (const GatherCase& c : kGatherCases) {
      const Ints index = random_rows(c.I, c.N);
      Floats x = random_values(T == DType::bf16 ? T : DType::f32, 1, {c.N, c.C}, 1000.0);
      if (T == DType::i32)
        for (float& v : x) v = std::round(v);
      Doubles y;
      for (const std::int32_t i : index)
        for (std::int64_t k = 0; k < c.C; ++k)
          y.push_back(i < 0 ? 0.0 : double(x[static_cast<std::size_t>(i * c.C + k)]));
      hold(c.why,
           [&](Device& d) {
             GatherRows a;
             a.x = T == DType::i32 ? d.in("x", {c.N, c.C}, Ints(x.begin(), x.end()))
                                   : d.in("x", T, {c.N, c.C}, x);
             a.index = d.in("index", {c.I}, index);
             a.y = d.out("y", T, {c.I, c.C});
             d.ops().gather_rows(Lane::compute, a);
             return std::vector{a.y};
           },
           {{"y", y, Doubles(y.size(), 0.0)}});
    }
}

BOOST_AUTO_TEST_CASE(combine_rows_sums_in_order) {
  for (const DType T : kTypes)
    for (const CombineCase& c : kCombineCases) {
      const Ints index = random_rows(c.N * c.J, c.I);
      const Floats x = random_values(T, 1, {c.I, c.C}), w = random_values(DType::f32, 2, {c.N, c.J}),
                   add = random_values(T, 3, {c.N, c.C});
      Doubles y = c.add ? to_doubles(add) : Doubles(add.size(), 0.0), magnitude = y;
      for (double& v : magnitude) v = std::abs(v);
      for (std::int64_t i = 0; i < c.N * c.J; ++i)
        for (std::int64_t k = 0; k < c.C; ++k) {
          if (index[static_cast<std::size_t>(i)] < 0) continue;
          const double part = (c.weights ? double(w[static_cast<std::size_t>(i)]) : 1.0) *
                              x[static_cast<std::size_t>(index[static_cast<std::size_t>(i)] * c.C + k)];
          y[static_cast<std::size_t>(i / c.J * c.C + k)] += part;
          magnitude[static_cast<std::size_t>(i / c.J * c.C + k)] += std::abs(part);
        }
      // The sum is rounded to float, then to T.
      hold(c.why,
           [&](Device& d) {
             CombineRows a;
             a.x = d.in("x", T, {c.I, c.C}, x);
             a.index = d.in("index", {c.N, c.J}, index);
             if (c.weights) a.weights = d.in("weights", DType::f32, {c.N, c.J}, w);
             if (c.add) a.add = d.in("add", T, {c.N, c.C}, add);
             a.y = c.in_place ? a.add : d.out("y", T, {c.N, c.C});
             d.ops().combine_rows(Lane::compute, a);
             return std::vector{a.y};
           },
           {rounded_once("y", T, y, [&](std::size_t i) { return kF32 * magnitude[i]; })});
    }
}

BOOST_AUTO_TEST_CASE(cpu_operations_refuse_rows_that_are_not_there) {
  Device d(cpu());
  const Tensor x = d.out("x", DType::f32, {3, 2}), y = d.out("y", DType::f32, {2, 2});
  const Tensor index = d.in("index", {2}, Ints{0, 3});
  BOOST_CHECK_THROW(d.ops().gather_rows(Lane::compute, {.x = x, .index = index, .y = y}), Error);
  BOOST_CHECK_THROW(d.ops().combine_rows(Lane::compute, {.x = x, .index = index.view({2, 1}), .y = y}),
                    Error);
  BOOST_TEST(d.intact());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace annulus::test
