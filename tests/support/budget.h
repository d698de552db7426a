// How wrong an operation may be: measured against what the plain loop in the same precision does.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace annulus::test {

inline double worst(std::span<const float> a, std::span<const double> exact) {
  if (a.size() != exact.size()) return std::numeric_limits<double>::infinity();
  double m = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return std::numeric_limits<double>::infinity();  // NaN never passes
    m = std::max(m, std::abs(double(a[i]) - exact[i]));
  }
  return m;
}

/// The operation under test may be at most `factor` times as wrong as the plain loop, both against double.
inline bool within_budget(std::span<const float> got, std::span<const float> plain,
                          std::span<const double> exact, double factor = 2.0) {
  return worst(got, exact) <= factor * worst(plain, exact) + 1e-7;
}

}  // namespace annulus::test
