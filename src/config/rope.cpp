// Rotary frequencies. inv[i] = theta^(-2i/D), then scaled by type:
//   yarn    Peng et al. 2023: between the dimensions that turn beta_fast and beta_slow times over the
//   original
//           positions, from "kept" to "divided by factor" along a ramp; cos and sin times attention_factor
//   llama3  by wavelength: short ones kept, long ones divided, a ramp between
#include <algorithm>
#include <cmath>
#include <numbers>
#include "config/model_config.h"
#include "core/check.h"

namespace annulus {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

double yarn_magnitude(double factor, double weight) {
  return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

double yarn_attention_factor(const RopeConfig& r) {
  if (r.attention_factor > 0) return r.attention_factor;
  if (r.mscale != 0 && r.mscale_all_dim != 0)
    return yarn_magnitude(r.factor, r.mscale) / yarn_magnitude(r.factor, r.mscale_all_dim);
  return yarn_magnitude(r.factor, 1.0);
}

void scale_yarn(const RopeConfig& r, std::int64_t D, std::vector<double>& inv) {
  const double d = static_cast<double>(D), positions = static_cast<double>(r.original_positions);
  const auto dimension = [&](double turns) {
    return d * std::log(positions / (turns * kTwoPi)) / (2 * std::log(r.theta));
  };
  double low = dimension(r.beta_fast), high = dimension(r.beta_slow);
  if (r.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, d - 1);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < inv.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inv[i] = (1 - ramp) * inv[i] + ramp * inv[i] / r.factor;
  }
}

void scale_llama3(const RopeConfig& r, std::vector<double>& inv) {
  const double positions = static_cast<double>(r.original_positions);
  for (double& f : inv) {
    const double wave = kTwoPi / f;
    if (wave < positions / r.high_freq_factor) continue;
    const double t = (positions / wave - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
    f = wave > positions / r.low_freq_factor ? f / r.factor : (1 - t) * f / r.factor + t * f;
  }
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& r, std::int64_t D) {
  need(D >= 2 && D % 2 == 0 && r.theta > 1, "rotary embedding: dimensions are even and theta is above 1");
  RopeFrequencies out;
  out.inv_freq.resize(static_cast<std::size_t>(D / 2));
  for (std::size_t i = 0; i < out.inv_freq.size(); ++i)
    out.inv_freq[i] = std::pow(r.theta, -2.0 * static_cast<double>(i) / static_cast<double>(D));
  if (r.type == "yarn") {
    scale_yarn(r, D, out.inv_freq);
    out.factor = yarn_attention_factor(r);
  } else if (r.type == "llama3") {
    scale_llama3(r, out.inv_freq);
  } else {
    need(r.type == "default", "rotary embedding: unknown type");
  }
  return out;
}

}  // namespace annulus
