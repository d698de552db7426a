#pragma once
#include <cstdint>

namespace annulus::test {

struct EmbedCase {
  std::int64_t N, V, C;
  const char* why;
};
inline constexpr EmbedCase kEmbedCases[] = {
    {1, 1, 1, "smallest"}, {0, 5, 3, "no token"}, {37, 5, 19, "ids repeat"}, {130, 1009, 257, "odd width"}};

}  // namespace annulus::test
