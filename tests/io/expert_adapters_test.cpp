// Adapters of experts: PEFT's matrices and our stacks, element by element and in any ranges.
#include "io/expert_adapters.h"
#include <boost/test/unit_test.hpp>
#include <numeric>
#include "core/bf16.h"
#include "core/check.h"

using namespace annulus;

namespace {

using Values = std::vector<float>;

ReadElements reading(const Values& from) {
  return [&from](std::int64_t at, std::int64_t n, const Tensor& to) {
    need(at >= 0 && at + n <= static_cast<std::int64_t>(from.size()), "read beyond the end");
    std::copy_n(from.begin() + at, n, to.as<float>());
  };
}

using Turn = void(const Shape&, const ReadElements&, std::int64_t, std::int64_t, const Tensor&);

/// All elements, in ranges of `step`.
Values turned(Turn* turn, const Shape& stack, const Values& from, std::int64_t step) {
  const auto n = static_cast<std::int64_t>(from.size());
  Values to(from.size(), -1.f);
  for (std::int64_t at = 0; at < n; at += step) {
    const std::int64_t count = std::min(step, n - at);
    turn(stack, reading(from), at, count, make_tensor("part", to.data() + at, DType::f32, {count}));
  }
  return to;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(io)

BOOST_AUTO_TEST_CASE(b_of_experts_has_the_expert_fastest_in_peft) {
  for (const Shape& stack :
       {Shape{5, 7, 3}, Shape{1, 4, 2}, Shape{4, 1, 1}, Shape{3, 11, 5}, Shape{2, 2, 2}}) {
    const std::int64_t E = stack[0], out = stack[1], r = stack[2];
    Values matrix(static_cast<std::size_t>(E * out * r));
    std::iota(matrix.begin(), matrix.end(), 1.f);
    Values want(matrix.size());
    for (std::int64_t e = 0; e < E; ++e)
      for (std::int64_t o = 0; o < out; ++o)
        for (std::int64_t j = 0; j < r; ++j)
          want[static_cast<std::size_t>((e * out + o) * r + j)] =
              matrix[static_cast<std::size_t>(o * r * E + j * E + e)];
    for (const std::int64_t step :
         {std::int64_t{1}, std::int64_t{2}, r + 1, out * r, 2 * out * r - 1, E * out * r}) {
      BOOST_TEST_INFO("experts " << E << " out " << out << " rank " << r << " in ranges of " << step);
      BOOST_TEST((turned(stack_from_matrix, stack, matrix, step) == want));
      BOOST_TEST((turned(matrix_from_stack, stack, want, step) == matrix));
    }
  }
  // More than is read at a time, a part of the experts, into bf16.
  const Shape stack{6, 50'000, 5};
  Values matrix(6 * 50'000 * 5);
  for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(i % 251);
  std::vector<bf16> part(2 * 50'000 * 5);
  stack_from_matrix(stack, reading(matrix), 3 * 50'000 * 5, 2 * 50'000 * 5,
                    make_tensor("part", part.data(), DType::bf16, {2 * 50'000 * 5}));
  std::size_t wrong = 0;
  for (std::int64_t e = 3; e < 5; ++e)
    for (std::int64_t o = 0; o < 50'000; ++o)
      for (std::int64_t j = 0; j < 5; ++j)
        wrong += widen(part[static_cast<std::size_t>(((e - 3) * 50'000 + o) * 5 + j)]) !=
                 matrix[static_cast<std::size_t>(o * 30 + j * 6 + e)];
  BOOST_TEST(wrong == 0u);
}

BOOST_AUTO_TEST_CASE(shapes_of_experts_adapters_turn_both_ways) {
  const std::string name = "base_model.model.model.layers.0.mlp.experts.base_layer",
                    a = name + ".lora_A.weight", b = name + ".lora_B.weight";
  BOOST_TEST(is_expert_adapter(a));
  BOOST_TEST(is_expert_adapter("base_model.model.model.layers.0.mlp.experts.lora_B.weight"));
  BOOST_TEST(!is_expert_adapter("base_model.model.model.layers.0.mlp.gate_proj.lora_B.weight"));
  BOOST_TEST((stack_shape(a, {15, 11}, 3) == Shape{5, 3, 11}));
  BOOST_TEST((stack_shape(b, {7, 15}, 3) == Shape{5, 7, 3}));
  BOOST_TEST((stack_shape(b, {7, 16}, 3) == Shape{7, 16}));  // another rank's
  BOOST_TEST((matrix_shape(a, {5, 3, 11}) == Shape{15, 11}));
  BOOST_TEST((matrix_shape(b, {5, 7, 3}) == Shape{7, 15}));
  BOOST_TEST((matrix_shape(b, {7, 3}) == Shape{7, 3}));
}

BOOST_AUTO_TEST_SUITE_END()
