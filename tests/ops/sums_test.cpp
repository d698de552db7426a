#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include "core/bf16.h"
#include "ops/sums_cases.h"
#include "support/backends.h"
#include "support/judge.h"

namespace annulus::test {
BOOST_AUTO_TEST_SUITE(ops)

BOOST_AUTO_TEST_CASE(sum_adds_to_what_was_there) {
  for (const auto& [name, backend] : backends())
    for (const DType T : kTypes)
      for (const std::int64_t n : kVectorSizes)
        for (const bool squares : {false, true}) {
          const Floats x = random_values(T, 1, n);
          double exact = 0.75, magnitude = 0.75;
          for (const float v : x) {
            exact += squares ? double(v) * v : v;
            magnitude += squares ? double(v) * v : std::abs(v);
          }
          double got[2];
          for (double& value : got) {
            Device d(*backend);
            const Tensor out = d.in("out", {1}, Doubles{0.75});
            d.ops().sum(Lane::compute, {.x = d.in("x", T, {n}, x), .out = out, .squares = squares});
            value = d.doubles(out)[0];
            BOOST_TEST(d.intact());
          }
          BOOST_TEST(std::abs(got[0] - exact) <= 1e-13 * magnitude, name << ": sum of " << n);
          BOOST_TEST(got[0] == got[1]);
        }
}

BOOST_AUTO_TEST_CASE(column_sum_adds_to_what_was_there) {
  for (const DType T : kTypes)
    for (const ColumnSumCase& c : kColumnSumCases) {
      const Floats x = random_values(T, 1, {c.N, c.C}), before = random_values(DType::f32, 2, c.C);
      Doubles sum = to_doubles(before);
      for (std::size_t i = 0; i < x.size(); ++i) sum[i % static_cast<std::size_t>(c.C)] += x[i];
      hold(c.why,
           [&](Device& d) {
             const Tensor out = d.in("out", DType::f32, {c.C}, before);
             d.ops().column_sum(Lane::compute, {.x = d.in("x", T, {c.N, c.C}, x, c.gap), .out = out});
             return std::vector{out};
           },
           {rounded_once("out", DType::f32, sum, 1e-12)});
    }
}

BOOST_AUTO_TEST_CASE(add_of_mixed_types) {
  for (const DType X : kTypes)
    for (const DType Y : kTypes)
      for (const std::int64_t n : kVectorSizes) {
        const Floats x = random_values(X, 1, n), y = random_values(Y, 2, n);
        Doubles sum = to_doubles(y);
        for (std::size_t i = 0; i < x.size(); ++i) sum[i] += x[i];
        hold("add",
             [&](Device& d) {
               const Tensor out = d.in("y", Y, {n}, y);
               d.ops().add(Lane::compute, {.x = d.in("x", X, {n}, x), .y = out});
               return std::vector{out};
             },
             {rounded_once("y", Y, sum, [&](std::size_t i) { return kF32 * std::abs(sum[i]); })});
      }
}

BOOST_AUTO_TEST_CASE(cast_rounds_to_nearest_even) {
  // Ties both ways, a carry into the exponent, the largest, denormal and infinite values.
  const Floats from{1.f,
                    1.f + 0x1p-8f,
                    1.f + 3 * 0x1p-8f,
                    1.f + 0x1.01p-8f,
                    -1.99999f,
                    3.38953139e38f,
                    3.4e38f,
                    1e-40f,
                    0.f,
                    -0.f,
                    std::numeric_limits<float>::infinity()};
  const Floats want{1.f,
                    1.f,
                    1.f + 0x1p-6f,
                    1.f + 0x1p-7f,
                    -2.f,
                    3.38953139e38f,
                    std::numeric_limits<float>::infinity(),
                    0x1p-133f,
                    0.f,
                    -0.f,
                    std::numeric_limits<float>::infinity()};
  const auto n = static_cast<std::int64_t>(from.size());
  for (const auto& [name, backend] : backends()) {
    Device d(*backend);
    const Tensor to = d.out("to", DType::bf16, {n}), back = d.out("back", DType::f32, {n});
    d.ops().cast(Lane::compute, {.from = d.in("from", DType::f32, {n}, from), .to = to});
    d.ops().cast(Lane::compute, {.from = to, .to = back});
    const Floats got = d.floats(back);
    for (std::size_t i = 0; i < want.size(); ++i)
      BOOST_TEST((got[i] == want[i] && std::signbit(got[i]) == std::signbit(want[i])),
                 name << ": " << from[i] << " became " << got[i] << ", not " << want[i]);
    BOOST_TEST(d.intact());
  }
  for (const std::int64_t size : kVectorSizes) {
    const Floats x = random_values(DType::f32, 1, size);
    hold("cast",
         [&](Device& d) {
           const Tensor to = d.out("to", DType::bf16, {size});
           d.ops().cast(Lane::compute, {.from = d.in("from", DType::f32, {size}, x), .to = to});
           return std::vector{to};
         },
         {{"to", to_doubles(to_floats(to_doubles(x), DType::bf16)), Doubles(x.size(), 0.0)}});
  }
}

BOOST_AUTO_TEST_CASE(cast_keeps_nan) {
  for (const auto& [name, backend] : backends()) {
    Device d(*backend);
    const Tensor to = d.out("to", DType::bf16, {1});
    d.ops().cast(Lane::compute,
                 {.from = d.in("from", DType::f32, {1}, {std::bit_cast<float>(0x7F800001u)}), .to = to});
    BOOST_TEST(std::isnan(d.floats(to)[0]), name);
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace annulus::test
