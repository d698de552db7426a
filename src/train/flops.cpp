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

double model_flops(const ModelConfig& c, const RowShape& row) {
  const double tokens = static_cast<double>(row.used);
  const auto d = [](std::int64_t n) { return static_cast<double>(n); };
  const double attention = d(c.C) * d((c.H + 2 * c.G) * c.D) + d(c.H * c.D) * d(c.C);
  const double dense = 3 * d(c.C) * d(c.F), sparse = d(c.C) * d(c.E) + d(c.K) * 3 * d(c.C) * d(c.Fe);
  double forward = 2 * tokens * d(c.C) * d(c.V);
  for (std::int64_t l = 0; l < c.L; ++l)
    forward +=
        2 * tokens * (attention + (c.has_experts(l) ? sparse : dense)) +
        4 * d(c.H * c.D) * visible_pairs(row, c.windows.empty() ? 0 : c.windows[static_cast<std::size_t>(l)]);
  return 3 * forward;
}

}  // namespace annulus
