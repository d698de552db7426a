#pragma once
#include <cstdint>

namespace annulus::test {

struct SwigluCase {
  std::int64_t N, F;
  double spread;  // of g and u
  const char* why;
};
inline constexpr SwigluCase kSwigluCases[] = {{1, 1, 1.0, "smallest"},
                                              {0, 9, 1.0, "no token"},
                                              {5, 255, 1.0, "below a chunk"},
                                              {3, 769, 1.0, "odd, several chunks"},
                                              {2, 300, 60.0, "far tails of the sigmoid"}};

}  // namespace annulus::test
