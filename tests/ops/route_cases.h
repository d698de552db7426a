#pragma once
#include <cstdint>

namespace annulus::test {

struct RouteCase {
  std::int64_t N, E, K;
  double spread;  // from a token's smallest logit to its largest
  const char* why;
};
inline constexpr RouteCase kRouteCases[] = {{1, 1, 1, 1.0, "smallest"},
                                            {0, 8, 2, 4.0, "no token"},
                                            {7, 13, 3, 4.0, "a prime number of experts"},
                                            {6, 5, 5, 3.0, "every expert"},
                                            {5, 37, 1, 4.0, "one expert a token"},
                                            {301, 128, 8, 6.0, "as models have it, odd number of tokens"},
                                            {9, 512, 10, 8.0, "many experts"},
                                            {3, 7, 2, 200.0, "far tails of the softmax"}};

}  // namespace annulus::test
