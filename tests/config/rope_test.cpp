// Frequencies against values that were computed once from the published formulas.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include "config/model_config.h"

using namespace annulus;

namespace {

RopeConfig yarn(double theta, double factor, std::int64_t original) {
  RopeConfig r;
  r.type = "yarn";
  r.theta = theta;
  r.factor = factor;
  r.original_positions = original;
  return r;
}

/// How much of each frequency was divided: 0 kept, 1 divided by the factor.
std::vector<double> ramp_of(const RopeConfig& r, std::int64_t D) {
  RopeConfig plain;
  plain.theta = r.theta;
  const auto base = rope_frequencies(plain, D).inv_freq, scaled = rope_frequencies(r, D).inv_freq;
  std::vector<double> out;
  for (std::size_t i = 0; i < base.size(); ++i) out.push_back((1 - scaled[i] / base[i]) / (1 - 1 / r.factor));
  return out;
}

/// The first dimension that is not kept, and the first that is wholly divided.
std::pair<int, int> edges(const std::vector<double>& ramp) {
  int low = 0, high = 0;
  while (low < static_cast<int>(ramp.size()) && ramp[static_cast<std::size_t>(low)] < 1e-9) ++low;
  while (high < static_cast<int>(ramp.size()) && ramp[static_cast<std::size_t>(high)] < 1 - 1e-9) ++high;
  return {low, high};
}

bool near(double got, double want, double relative) {
  return std::abs(got - want) <= relative * std::abs(want);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(config)

BOOST_AUTO_TEST_CASE(default_frequencies) {
  RopeConfig r;
  r.theta = 1e6;
  const RopeFrequencies f = rope_frequencies(r, 128);
  BOOST_TEST(f.inv_freq.size() == 64u);
  BOOST_TEST(f.factor == 1.0);
  BOOST_TEST(f.inv_freq[0] == 1.0);
  BOOST_TEST(near(f.inv_freq[32], 1e-3, 1e-14));
  BOOST_TEST(rope_frequencies(r, 6).inv_freq.size() == 3u);
  BOOST_TEST(near(rope_frequencies(r, 6).inv_freq[1], 1e-2, 1e-14));
}

BOOST_AUTO_TEST_CASE(yarn_of_qwen3) {
  const RopeFrequencies x4 = rope_frequencies(yarn(1e6, 4, 32768), 128),
                        x32 = rope_frequencies(yarn(1e6, 32, 32768), 128);
  BOOST_TEST(near(x4.factor, 1.1386294, 1e-7));
  BOOST_TEST(near(x32.factor, 1.3465736, 1e-7));
  BOOST_TEST(near(x4.inv_freq[63], 3.1023e-7, 2e-5));
  BOOST_TEST(near(x32.inv_freq[63], 3.8779e-8, 2e-5));
  BOOST_TEST(near(x32.inv_freq[32], 4.8713e-4, 2e-5));
  const auto [low, high] = edges(ramp_of(yarn(1e6, 4, 32768), 128));
  BOOST_TEST((low == 24 && high == 40));  // low = 23 itself is kept
  const auto [low2, high2] = edges(ramp_of(yarn(1e6, 25.6, 40960), 128));
  BOOST_TEST((low2 == 25 && high2 == 41));
  BOOST_TEST(near(rope_frequencies(yarn(1e6, 25.6, 40960), 128).factor, 1.3242592, 1e-7));
}

BOOST_AUTO_TEST_CASE(yarn_without_truncation) {
  RopeConfig r = yarn(150000, 32, 4096);  // gpt-oss: low 8.09278, high 17.39802
  r.truncate = false;
  const std::vector<double> ramp = ramp_of(r, 64);
  BOOST_TEST(std::abs(ramp[8]) < 1e-12);
  for (const int i : {9, 12, 17})
    BOOST_TEST(near(ramp[static_cast<std::size_t>(i)], (i - 8.09278) / (17.39802 - 8.09278), 1e-5));
  BOOST_TEST(near(ramp[18], 1, 1e-12));
  BOOST_TEST(near(rope_frequencies(r, 64).factor, 1.3465736, 1e-7));
}

BOOST_AUTO_TEST_CASE(yarn_attention_factor) {
  RopeConfig r = yarn(1e4, 40, 4096);
  const auto [low, high] = edges(ramp_of(r, 64));
  BOOST_TEST((low == 11 && high == 23));  // DeepSeek-V3: 10 and 23
  r.mscale = r.mscale_all_dim = 1;
  BOOST_TEST(rope_frequencies(r, 64).factor == 1.0);  // the pair cancels
  r.mscale = 0.707;
  BOOST_TEST(
      near(rope_frequencies(r, 64).factor, (0.0707 * std::log(40) + 1) / (0.1 * std::log(40) + 1), 1e-14));
  r.attention_factor = 1.25;  // an explicit value wins
  BOOST_TEST(rope_frequencies(r, 64).factor == 1.25);
  BOOST_TEST(rope_frequencies(yarn(1e4, 1, 4096), 64).factor == 1.0);
}

BOOST_AUTO_TEST_CASE(llama3_frequencies) {
  RopeConfig r;
  r.type = "llama3";
  r.theta = 5e5;
  r.factor = 8;
  r.original_positions = 8192;
  const auto [low, high] = edges(ramp_of(r, 128));  // 0-28 kept, 29-34 blended, 35-63 divided
  BOOST_TEST((low == 29 && high == 35));
  r.factor = 32;
  const auto [low2, high2] = edges(ramp_of(r, 64));  // 0-14, 15-17, 18-31
  BOOST_TEST((low2 == 15 && high2 == 18));
  BOOST_TEST(rope_frequencies(r, 64).factor == 1.0);
  // By hand for dimension 16: wavelength 2 pi sqrt(theta), t = (8192 / wavelength - 1) / 3.
  const double f = 1 / std::sqrt(5e5), t = (8192 * f / (2 * std::acos(-1.0)) - 1) / 3;
  BOOST_TEST(near(rope_frequencies(r, 64).inv_freq[16], (1 - t) * f / 32 + t * f, 1e-13));
}

BOOST_AUTO_TEST_SUITE_END()
