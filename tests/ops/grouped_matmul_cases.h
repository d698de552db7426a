#pragma once
#include <cstdint>
#include <vector>

namespace annulus::test {

struct GroupedMatmulCase {
  std::vector<std::int64_t> rows;  // of each expert
  std::int64_t N, K;               // columns of the product; what is summed over (rows x rows: columns of a)
  std::int64_t before, after;      // rows that are nobody's
  const char* why;
};

inline std::vector<GroupedMatmulCase> grouped_matmul_cases() {
  return {{{1}, 1, 1, 0, 0, "smallest"},
          {{5, 0, 3}, 7, 11, 0, 0, "an expert without rows"},
          {{0, 0}, 4, 3, 0, 0, "no rows at all"},
          {{0, 9, 0, 0, 1}, 13, 6, 2, 3, "rows that are nobody's"},
          {{4, 7}, 1, 33, 0, 0, "one column"},
          {{4, 0, 7}, 5, 0, 0, 0, "nothing to sum"},
          {{3, 2}, 0, 5, 0, 0, "no columns"},
          {{1, 0, 129, 64, 300}, 264, 200, 1, 0, "larger than a tile, rows of 16 bytes"},
          {{130, 0, 257}, 262, 97, 0, 1, "larger than a tile, rows of any length"},
          {std::vector<std::int64_t>(301, 2), 16, 8, 0, 0, "more experts than one launch takes"}};
}

}  // namespace annulus::test
