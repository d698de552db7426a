#pragma once
#include <cstdint>

namespace annulus::test {

enum class Choice : std::uint8_t {
  spread,         // different experts, anywhere
  same,           // experts 0 .. K-1 for every token
  not_last_rank,  // none of the last rank's
  padding         // nobody's
};

struct DispatchCase {
  std::int64_t N, E, K, R;
  std::int64_t range;  // tokens of a sub-range
  Choice choice;
  const char* why;
};
inline constexpr DispatchCase kDispatchCases[] = {
    {1, 1, 1, 1, 1, Choice::spread, "smallest"},
    {0, 6, 2, 3, 4, Choice::spread, "no token"},
    {37, 12, 3, 4, 8, Choice::spread, "several experts a rank, a short last sub-range"},
    {37, 12, 3, 4, 100, Choice::spread, "a sub-range longer than all tokens"},
    {29, 13, 2, 1, 7, Choice::spread, "one rank, a prime number of experts"},
    {29, 13, 2, 13, 7, Choice::spread, "a rank an expert"},
    {23, 6, 6, 2, 5, Choice::spread, "every expert"},
    {41, 8, 2, 4, 16, Choice::same, "all tokens choose the same experts"},
    {41, 8, 2, 4, 16, Choice::not_last_rank, "a rank without rows"},
    {11, 8, 2, 4, 3, Choice::padding, "padding alone"},
    {700, 128, 8, 8, 256, Choice::spread, "as models have it"},
    {2053, 66, 4, 33, 512, Choice::spread, "more ranks than a warp has lanes"}};

}  // namespace annulus::test
