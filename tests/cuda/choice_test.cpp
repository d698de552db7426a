// Which engine computes a block.
#include "attention/choice.h"
#include <boost/test/unit_test.hpp>

using namespace annulus;
using namespace annulus::cuda;

namespace {

AttentionTraits traits() {
  return {.type = DType::bf16, .H = 32, .G = 8, .D = 128, .row_stride = 4096};
}

AttentionBlock block(std::int64_t q, std::int64_t k, Cover cover) {
  AttentionBlock b;
  b.q_count = q, b.k_count = k, b.cover = cover;
  return b;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda)

BOOST_AUTO_TEST_CASE(cudnn_takes_large_full_and_causal_blocks) {
  BOOST_TEST((choose(block(512, 512, Cover::causal), traits()) == Engine::cudnn));
  BOOST_TEST((choose(block(640, 131072, Cover::full), traits()) == Engine::cudnn));
  BOOST_TEST((choose(block(640, 640, Cover::partial), traits()) == Engine::own));
}

BOOST_AUTO_TEST_CASE(small_and_odd_blocks_stay) {
  BOOST_TEST((choose(block(384, 512, Cover::full), traits()) == Engine::own));
  BOOST_TEST((choose(block(512, 384, Cover::full), traits()) == Engine::own));
  BOOST_TEST((choose(block(704, 704, Cover::causal), traits()) == Engine::own));
  BOOST_TEST((choose(block(513, 1024, Cover::full), traits()) == Engine::own));
  BOOST_TEST((choose(block(1, 1024, Cover::full), traits()) == Engine::own));
  BOOST_TEST((choose(block(1024, 512, Cover::causal), traits()) == Engine::own));  // not a square
}

BOOST_AUTO_TEST_CASE(types_and_heads_that_cudnn_lacks_stay) {
  const AttentionBlock b = block(1024, 1024, Cover::causal);
  AttentionTraits t = traits();
  t.type = DType::f32;
  BOOST_TEST((choose(b, t) == Engine::own));
  t = traits(), t.D = 64;
  BOOST_TEST((choose(b, t) == Engine::cudnn));
  t = traits(), t.D = 96;
  BOOST_TEST((choose(b, t) == Engine::own));
  t = traits(), t.aligned = false;
  BOOST_TEST((choose(b, t) == Engine::own));
}

BOOST_AUTO_TEST_CASE(determinism_concerns_the_backward_alone) {
  const AttentionBlock b = block(1024, 1024, Cover::causal);
  AttentionTraits t = traits();
  t.deterministic = true;
  BOOST_TEST((choose(b, t) == Engine::cudnn));
  t.backward = true;
  BOOST_TEST((choose(b, t) == Engine::own));
  t.deterministic = false;
  BOOST_TEST((choose(b, t) == Engine::cudnn));
}

BOOST_AUTO_TEST_CASE(on_hopper_our_kernels_lead_forward_and_go_where_cudnn_cannot) {
  AttentionTraits t = traits();
  t.hopper = true;
  BOOST_TEST((choose(block(1024, 1024, Cover::causal), t) == Engine::hopper));
  BOOST_TEST((choose(block(1, 77, Cover::partial), t) == Engine::hopper));
  t.D = 64;
  BOOST_TEST((choose(block(1024, 1024, Cover::causal), t) == Engine::cudnn));
  BOOST_TEST((choose(block(1024, 1024, Cover::partial), t) == Engine::hopper));
  t.backward = true;
  BOOST_TEST((choose(block(1024, 1024, Cover::causal), t) == Engine::cudnn));
  BOOST_TEST((choose(block(1024, 1024, Cover::partial), t) == Engine::hopper));
  t.D = 128;
  BOOST_TEST((choose(block(1024, 1024, Cover::causal), t) == Engine::cudnn));
  BOOST_TEST((choose(block(1024, 1024, Cover::partial), t) == Engine::hopper));
  t.deterministic = true;
  BOOST_TEST((choose(block(1024, 1024, Cover::causal), t) == Engine::hopper));
  t.aligned = false;
  BOOST_TEST((choose(block(1024, 1024, Cover::causal), t) == Engine::own));
}

BOOST_AUTO_TEST_CASE(an_engine_asked_for_is_taken_or_refused) {
  AttentionTraits t = traits();
  t.hopper = true;
  const AttentionBlock whole = block(1024, 1024, Cover::causal), part = block(1024, 1024, Cover::partial);
  for (const Engine e : {Engine::cudnn, Engine::hopper, Engine::own}) {
    t.only = e;
    BOOST_TEST((choose(whole, t) == e));
  }
  BOOST_TEST((choose(part, t) == Engine::own));
  t.only = Engine::cudnn;
  BOOST_CHECK_THROW(choose(part, t), Error);
  t.only = Engine::hopper, t.hopper = false;
  BOOST_CHECK_THROW(choose(whole, t), Error);
}

BOOST_AUTO_TEST_CASE(offsets_stay_below_32_bits) {
  const AttentionTraits t = traits();
  const std::int64_t rows = cudnn_rows(t) / kCudnnMultiple * kCudnnMultiple;
  BOOST_TEST(rows * t.row_stride < (std::int64_t{1} << 31));
  BOOST_TEST((rows + kCudnnMultiple) * t.row_stride >= (std::int64_t{1} << 31));
  BOOST_TEST((choose(block(512, rows, Cover::full), t) == Engine::cudnn));
  BOOST_TEST((choose(block(512, rows + kCudnnMultiple, Cover::full), t) == Engine::own));
}

BOOST_AUTO_TEST_SUITE_END()
