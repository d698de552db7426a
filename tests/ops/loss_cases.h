#pragma once
#include <cstdint>

namespace annulus::test {

struct LossCase {
  std::int64_t N, V;
  double spread;  // of the logits
  double scale;
  const char* why;
};
inline constexpr LossCase kLossCases[] = {{1, 1, 1.0, 1.0, "one token to choose from"},
                                          {0, 5, 1.0, 1.0, "no row"},
                                          {11, 257, 3.0, 1.0 / 37, "odd vocabulary"},
                                          {5, 1009, 1e4, 0.25, "huge logits"},
                                          {5, 1009, 1e-3, 1.0, "flat"},
                                          {7, 300, 3.0, 0.0, "evaluation: no gradient"},
                                          {3, 33001, 2.0, 1e-6, "wide, tiny scale"}};

}  // namespace annulus::test
