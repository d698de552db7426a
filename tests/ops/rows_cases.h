#pragma once
#include <cstdint>

namespace annulus::test {

struct GatherCase {
  std::int64_t N, C, I;
  const char* why;
};
inline constexpr GatherCase kGatherCases[] = {{1, 1, 1, "smallest"},          {3, 7, 0, "nothing to gather"},
                                              {0, 7, 5, "nothing but zeros"}, {5, 0, 4, "no columns"},
                                              {61, 37, 103, "odd"},           {19, 2048, 67, "wide rows"},
                                              {7, 4100, 9, "half wide"}};

struct CombineCase {
  std::int64_t I, N, J, C;
  bool weights, add, in_place;  // in_place: add is y itself
  const char* why;
};
inline constexpr CombineCase kCombineCases[] = {
    {1, 1, 1, 1, true, false, false, "smallest"},
    {5, 0, 3, 9, true, false, false, "no token"},
    {0, 4, 3, 9, true, true, false, "nothing to add"},
    {101, 43, 3, 37, true, false, false, "odd"},
    {101, 43, 3, 37, false, true, true, "plain sums onto what was there"},
    {64, 21, 8, 2048, true, true, false, "wide rows and what goes round"},
    {9, 33, 13, 515, true, true, true, "more rows a token than there are"},
    {30, 11, 1, 4096, false, false, false, "one row a token"}};

}  // namespace annulus::test
