#pragma once
#include <cstdint>

namespace annulus::test {

struct QkRopeCase {
  std::int64_t N, H, G, D, R;  // R: rotated pairs
  bool q_norm, k_norm;
  std::int64_t position;  // of the first token; later ones follow, some jump back to 0
  double factor;
  const char* why;
};
inline constexpr QkRopeCase kQkRopeCases[] = {
    {1, 1, 1, 2, 1, false, false, 0, 1.0, "smallest"},
    {0, 2, 1, 8, 4, true, true, 0, 1.0, "no token"},
    {19, 6, 2, 24, 12, true, true, 100, 1.0, "odd head size"},
    {7, 3, 3, 64, 32, false, false, 3000, 1.2345, "no norms, YaRN's factor"},
    {5, 4, 1, 128, 64, true, true, 3999999, 1.0, "far positions"},
    {9, 4, 2, 24, 5, true, false, 17, 1.0, "partial rotation, one norm"}};

}  // namespace annulus::test
