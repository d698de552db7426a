// Rates files, and what calls cost.
#include "ops/dry/rates.h"
#include <boost/test/unit_test.hpp>
#include "support/data.h"
#include "support/refusal.h"

using namespace annulus;
using test::check_refused;

namespace {

const std::string kLines =
    "device A device   # two words\npeak_tflops 1000\ndevice_gb 100\nstart_gb 1\nlater_gb "
    "0.5\nranks_per_node 4\n"
    "copy_gbs 2000\npinned_gbs 50\npinned_both_gbs 40\nlink_gbs 300\nnetwork_gbs 25\nlatency_us 0\nlaunch_us "
    "0\n"
    "scratch.attention_bwd.q 4\nscratch.attention_bwd.k 2\nscratch.attention_bwd.row 1\n"
    "tflops.matmul 100\ntflops.attention_fwd.full 1000 10\ntflops.attention_fwd.full 100000 30\n"
    "tflops.attention_fwd.causal 20\ntflops.attention_fwd.partial 5\ntflops.attention_bwd.full 20\n"
    "tflops.attention_bwd.causal 20\ntflops.attention_bwd.partial 5\nof_copy.rmsnorm_fwd 0.5\n";

Rates parse(const std::string& text) {
  return Rates::parse(text, "x.rates");
}

Tensor shaped(DType type, std::initializer_list<std::int64_t> shape) {
  return make_tensor("t", reinterpret_cast<void*>(256), type, shape, Place::device);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(ops)

BOOST_AUTO_TEST_CASE(rates_turn_costs_into_seconds) {
  const Rates r = parse(kLines);
  BOOST_TEST(r.device() == "A device");
  BOOST_TEST(r.number("copy_gbs") == 2000);
  // Bytes at a share of the copy's rate; products at theirs, unless memory is slower.
  BOOST_TEST(r.seconds({"norm", "rmsnorm_fwd", 0, 3e9, 0}) == 3e-3, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(r.seconds({"matmul", "matmul", 1e12, 1, 0}) == 1e-2, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(r.seconds({"matmul", "matmul", 1e3, 4e9, 0}) == 2e-3, boost::test_tools::tolerance(1e-12));
  // By size: the nearest outside, half way in the logarithm within.
  const auto attention = [&](double size) {
    return 1 / r.seconds({"attention forward", "attention_fwd.full", 1e12, 0, size});
  };
  BOOST_TEST(attention(1) == 10, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(attention(1e7) == 30, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(attention(10000) == 20, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(r.unknown().empty());
  BOOST_TEST(r.seconds({"new", "new_op", 0, 2e9, 0}) == 1e-3, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(r.seconds({"new", "new_product", 1e12, 0, 0}) == 1e-2, boost::test_tools::tolerance(1e-12));
  BOOST_TEST((r.unknown() == std::set<std::string>{"of_copy.new_op", "tflops.new_product"}));
}

BOOST_AUTO_TEST_CASE(malformed_rates_are_refused_with_their_line) {
  const auto refused = [](const std::string& text, std::vector<std::string> parts) {
    parts.push_back("x.rates");
    check_refused(Exit::input, parts, [&] { parse(text); });
  };
  refused("", {"peak_tflops", "missing"});
  refused(kLines + "copy_gbs 3\n", {"line 26", "copy_gbs", "twice"});
  refused(kLines + "tflops.matmul 512 3\n", {"line 26", "with and without a size"});
  refused(kLines + "of_copy.sum fast\n", {"line 26", "fast"});
  refused(kLines + "of_copy.sum -1\n", {"-1"});
  refused(kLines + "of_copy.sum 0\n", {"above 0"});
  refused(kLines + "of_copy.sum inf\n", {"inf"});
  refused(kLines + "of_copy.sum 1 2 3\n", {"4 words"});
  refused(kLines + "of_copy.sum 0 1\n", {"not a size"});
  refused(kLines.substr(kLines.find('\n')), {"device NAME"});
  check_refused(Exit::input, {"no_such.rates", "--rates"}, [] { Rates::read("no_such.rates"); });
}

BOOST_AUTO_TEST_CASE(calls_cost_what_the_benchmarks_count) {
  const std::int64_t N = 37, C = 19, F = 23, H = 6, G = 2, D = 8;
  const Matmul m{.a = shaped(DType::bf16, {N, C}),
                 .b = shaped(DType::bf16, {F, N}),
                 .c = shaped(DType::f32, {C, F}),
                 .trans_a = true,
                 .trans_b = true};
  BOOST_TEST(cost(m).flops == 2.0 * C * N * F);
  BOOST_TEST(cost(m).bytes == 2.0 * (C * N + F * N) + 4.0 * C * F);
  BOOST_TEST(cost(m).rate == "matmul_into_f32");
  const SwigluBwd s{.gu = shaped(DType::bf16, {N, 2 * F}),
                    .dh = shaped(DType::bf16, {N, F}),
                    .h = {},
                    .dgu = shaped(DType::bf16, {N, 2 * F})};
  BOOST_TEST(cost(s).bytes == 2.0 * N * 5 * F);
  const QkRopeBwd r{.dq = shaped(DType::f32, {N, H, D}),
                    .dkv = shaped(DType::f32, {2, N, G, D}),
                    .qkv = shaped(DType::bf16, {N, H + 2 * G, D}),
                    .positions = shaped(DType::i64, {N}),
                    .inv_freq = shaped(DType::f64, {D / 2}),
                    .dqkv = shaped(DType::bf16, {N, H + 2 * G, D})};
  BOOST_TEST(cost(r).bytes == 6.0 * N * (H + 2 * G) * D + 2.0 * N * (H + G) * D + 8.0 * N);
  const AdamW a{.grad = shaped(DType::bf16, {N}),
                .master = shaped(DType::bf16, {N}),
                .m = shaped(DType::bf16, {N}),
                .v = shaped(DType::bf16, {N})};
  BOOST_TEST(cost(a).bytes == 14.0 * N);
  const std::vector<AttentionBlock> blocks = {
      {.q_count = 10, .k_count = 7, .cover = Cover::full, .pairs = 70},
      {.q_count = 5, .k_count = 5, .cover = Cover::partial, .pairs = 9}};
  AttentionBwd b;
  b.q = shaped(DType::bf16, {N, H, D});
  b.blocks = blocks;
  const std::vector<Cost> both = cost(b);
  BOOST_TEST_REQUIRE(both.size() == 2u);
  BOOST_TEST(both[0].flops == 10.0 * H * D * 70);
  BOOST_TEST(both[1].rate == "attention_bwd.partial");
  BOOST_TEST(both[1].size == 9.0 / 5);
}

BOOST_AUTO_TEST_CASE(the_rates_in_the_source_tree_are_whole) {
  BOOST_TEST(Rates::read(test::test_data("bench/results/h200.rates")).device() == "NVIDIA H200");
}

BOOST_AUTO_TEST_SUITE_END()
