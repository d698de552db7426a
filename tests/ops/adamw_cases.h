#pragma once
#include <cstdint>

namespace annulus::test {

struct AdamWCase {
  std::int64_t n;
  double lr, beta1, beta2, eps, decay, grad_scale;
  const char* why;
};
inline constexpr AdamWCase kAdamWCases[] = {{1, 1e-3, 0.9, 0.999, 1e-8, 0.0, 1.0, "one element"},
                                            {0, 1e-3, 0.9, 0.999, 1e-8, 0.0, 1.0, "none"},
                                            {1021, 2e-2, 0.9, 0.95, 1e-8, 0.1, 0.37, "decay and clipping"},
                                            {515, 1e-3, 0.0, 0.5, 1e-3, 0.01, 1.0, "no momentum, large eps"}};

}  // namespace annulus::test
