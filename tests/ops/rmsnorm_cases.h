#pragma once
#include <cstdint>

namespace annulus::test {

struct RmsNormCase {
  std::int64_t N, C;
  const char* why;
};
inline constexpr RmsNormCase kRmsNormCases[] = {{1, 1, "smallest"},
                                                {0, 7, "no token"},
                                                {3, 127, "odd width"},
                                                {67, 257, "more rows than a block, odd width"},
                                                {2, 4100, "beyond 4096, no power of two"}};

}  // namespace annulus::test
