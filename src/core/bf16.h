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

/// Writes a float into storage of type T, rounding once.
template <class T>
T store(float v) {
  if constexpr (std::is_same_v<T, bf16>)
    return narrow(v);
  else
    return static_cast<T>(v);
}

}  // namespace annulus
