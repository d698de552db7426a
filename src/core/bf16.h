// bfloat16 on the host: widening is exact, narrowing rounds to nearest, ties to even; NaN stays NaN.
#pragma once
#include <bit>
#include <cstdint>
#include "core/tensor.h"

namespace annulus {

inline float widen(bf16 v) {
  return std::bit_cast<float>(std::uint32_t{v.bits} << 16);
}
inline float widen(float v) {
  return v;
}

inline bf16 narrow(float v) {
  const auto u = std::bit_cast<std::uint32_t>(v);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<std::uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16)};
}

/// Rounds up or down so that the mean over `random` is v: 16 random bits (the upper half of a word of draw())
/// are added below bf16's last place and the sum is truncated. Values that bf16 holds come back as they are;
/// infinities and NaN too. constexpr, so that a kernel can share the rule.
constexpr bf16 narrow_stochastic(float v, std::uint32_t random) {
  const auto u = std::bit_cast<std::uint32_t>(v);
  if ((u & 0x7F800000u) == 0x7F800000u)
    return {static_cast<std::uint16_t>((u >> 16) | ((u & 0xFFFFu) != 0 ? 0x40u : 0u))};
  return {static_cast<std::uint16_t>((u + (random >> 16)) >> 16)};
}

/// Writes a float into storage of type T, rounding once.
template <class T>
T store(float v) {
  if constexpr (std::is_same_v<T, bf16>)
    return narrow(v);
  else
    return static_cast<T>(v);
}

}  // namespace annulus
