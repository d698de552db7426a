#include "train/flops.h"
#include <algorithm>

namespace annulus {

double visible_pairs(const RowShape& row, std::int64_t window) {
  double pairs = 0;
  for (std::size_t d = 0; d < row.starts.size(); ++d) {
    const std::int64_t end = d + 1 < row.starts.size() ? row.starts[d + 1] : row.used;
    const std::int64_t n = end - row.starts[d];
    const std::int64_t w = window > 0 ? std::min(window, n) : n;
    // Queries below w see all before them, the others w keys each.
    pairs += 0.5 * static_cast<double>(w) * static_cast<double>(w + 1) +
             static_cast<double>(n - w) * static_cast<double>(w);
  }
  return pairs;
}

namespace {

/// Elements of A and B of a layer that a token meets: of experts those of K.
std::int64_t adapter_size(const ModelConfig& c, const LoraConfig& lora, std::int64_t layer) {
  const std::int64_t q = c.H * c.D, k = c.G * c.D;
  const std::int64_t ends[] = {c.C + q,           c.C + k,   c.C + k,   q + c.C,
                               c.C + c.F,         c.C + c.F, c.F + c.C, c.K * (c.C + 2 * c.Fe),
                               c.K * (c.Fe + c.C)};
  std::int64_t n = 0;
  for (const Target t : lora.targets)
    if (has_target(c, layer, t)) n += lora.rank_of(t) * ends[static_cast<int>(t)];
  return n;
}

}  // namespace

double model_flops(const ModelConfig& c, const LoraConfig& lora, const RowShape& row) {
  const double tokens = static_cast<double>(row.used);
  const auto d = [](std::int64_t n) { return static_cast<double>(n); };
  const double attention = d(c.C) * d((c.H + 2 * c.G) * c.D) + d(c.H * c.D) * d(c.C);
  const double dense = 3 * d(c.C) * d(c.F), sparse = d(c.C) * d(c.E) + d(c.K) * 3 * d(c.C) * d(c.Fe);
  double matrices = 2 * tokens * d(c.C) * d(c.V);
  double others = 0;
  for (std::int64_t l = 0; l < c.L; ++l) {
    matrices += 2 * tokens * (attention + (c.has_experts(l) ? sparse : dense));
    others += 2 * tokens * d(adapter_size(c, lora, l));
    others +=
        4 * d(c.H * c.D) * visible_pairs(row, c.windows.empty() ? 0 : c.windows[static_cast<std::size_t>(l)]);
  }
  return (lora.rank > 0 ? 2 : 3) * matrices + 3 * others;
}

}  // namespace annulus
