#pragma once
#include <cstdint>

namespace annulus::test {

/// Vectors for sum, add, cast.
inline constexpr std::int64_t kVectorSizes[] = {0, 1, 7, 1021, 70001};

struct ColumnSumCase {
  std::int64_t N, C, gap;
  const char* why;
};
inline constexpr ColumnSumCase kColumnSumCases[] = {
    {1, 1, 0, "smallest"}, {0, 5, 0, "no row"}, {301, 67, 0, "odd"}, {19, 515, 9, "strided rows"}};

}  // namespace annulus::test
