// Which engine computes a grouped matmul.
#include "moe/grouped_choice.h"
#include <boost/test/unit_test.hpp>

using namespace annulus;
using namespace annulus::cuda;

namespace {

alignas(16) char memory[64];

GroupedMatmul product(DType T, std::int64_t K, std::int64_t N, int offset = 0) {
  GroupedMatmul m;
  m.a = make_tensor("a", memory, T, {100, K}, Place::device);
  m.b = make_tensor("b", memory + offset, T, {3, K, N}, Place::device);
  m.c = make_tensor("c", memory, T, {100, N}, Place::device);
  return m;
}

bool on_hopper(const GroupedMatmul& m) {
  return choose_grouped(m, true) == GroupedEngine::hopper;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda)

BOOST_AUTO_TEST_CASE(grouped_kernels_take_rows_of_16_bytes) {
  BOOST_TEST(on_hopper(product(DType::bf16, 2048, 1536)));
  BOOST_TEST(on_hopper(product(DType::bf16, 8, 264)));
  BOOST_TEST(!on_hopper(product(DType::bf16, 2044, 1536)));
  BOOST_TEST(!on_hopper(product(DType::bf16, 2048, 1)));
  BOOST_TEST(!on_hopper(product(DType::bf16, 0, 1536)));        // nothing to sum: zeros
  BOOST_TEST(!on_hopper(product(DType::bf16, 2048, 1536, 8)));  // an address between
  BOOST_TEST(!on_hopper(product(DType::f32, 2048, 1536)));
  BOOST_TEST((choose_grouped(product(DType::bf16, 2048, 1536), false) == GroupedEngine::one_by_one));
}

BOOST_AUTO_TEST_CASE(grouped_gradients_may_have_any_number_of_rows) {
  GroupedMatmul m;
  m.a = make_tensor("a", memory, DType::bf16, {101, 1536}, Place::device);
  m.b = make_tensor("b", memory, DType::bf16, {101, 2048}, Place::device);
  m.c = make_tensor("c", memory, DType::f32, {3, 1536, 2048}, Place::device);
  m.gradient = true;
  BOOST_TEST(on_hopper(m));
  m.b.shape[1] = m.c.shape[2] = 2047;
  BOOST_TEST(!on_hopper(m));
}

BOOST_AUTO_TEST_SUITE_END()
