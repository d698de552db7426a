#include "core/rng.h"
#include <cmath>
#include <numbers>

namespace annulus {

double normal(std::uint64_t seed, Draw what, std::uint64_t stream, std::uint64_t index) {
  const auto bits = draw(seed, what, stream, index);
  return std::sqrt(-2.0 * std::log(unit_interval(bits[0]))) *
         std::cos(2.0 * std::numbers::pi * unit_interval(bits[1]));
}

}  // namespace annulus
