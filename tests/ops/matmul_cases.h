#pragma once
#include <cstdint>

namespace annulus::test {

struct MatmulCase {
  std::int64_t M, N, K;
  bool trans_a, trans_b, add, in_place, bias;  // in_place: add is c itself
  std::int64_t gap;                            // elements between rows of a, b, c and add
  const char* why;
  double scale = 1.0;
};
inline constexpr MatmulCase kMatmulCases[] = {
    {1, 1, 1, false, false, false, false, false, 0, "smallest"},
    {7, 13, 129, false, true, false, false, true, 0, "x W' + bias, odd"},
    {61, 37, 53, false, true, true, false, true, 0, "x W' + residual + bias"},
    {61, 37, 53, true, false, true, true, false, 0, "dW += x' dy"},
    {5, 300, 31, false, false, true, true, true, 3, "everything, strided rows"},
    {33, 29, 47, true, true, false, false, false, 5, "both transposed, strided rows"},
    {0, 5, 3, false, false, false, false, false, 0, "no rows"},
    {5, 0, 3, false, false, false, false, false, 0, "no columns"},
    {5, 4, 0, false, false, false, false, false, 0, "nothing to sum: zeros"},
    {5, 4, 0, true, false, true, false, true, 0, "nothing to sum but add and bias"},
    {257, 513, 1030, false, false, true, true, false, 0, "larger than a tile each way"},
    {257, 513, 1030, true, false, false, false, false, 1, "larger than a tile, a transposed"},
    {257, 513, 1030, false, true, false, false, true, 1, "larger than a tile, b transposed"},
    {61, 37, 5, false, true, true, true, false, 7, "y += scale t B', a narrow slice", 1.75},
    {13, 7, 129, true, false, true, true, true, 2, "scale leaves add and bias alone", -0.3},
    {257, 513, 1030, false, false, false, false, false, 0, "scaled, larger than a tile each way", 0.37},
    {5, 4, 0, false, false, true, false, true, 0, "scale of nothing", 2.5}};

}  // namespace annulus::test
