// e^x that vectorises.
#pragma once
#include <bit>
#include <cstdint>

namespace annulus::ref {

/// e^x in float for x <= 88, within 3 units in the last place; 0 below -87. No branch and no call, so that
/// loops over it vectorise: x = n ln 2 + r with |r| <= ln 2 / 2, e^r by its series to r^7 (the rest is below
/// 6e-9), times 2^n. NaN stays NaN.
inline float exp_fast(float x) {
  constexpr float kShift = 12582912.f;        // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kLn2High = 0.693359375f;    // few bits, so n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4f;  // ln 2 - kLn2High
  const float t = x < -87.f ? -87.f : x;
  const float shifted = t * 1.44269504f + kShift;
  const float n = shifted - kShift;
  const float r = t - n * kLn2High - n * kLn2Low;
  float p = 1.f / 5040;
  p = p * r + 1.f / 720;
  p = p * r + 1.f / 120;
  p = p * r + 1.f / 24;
  p = p * r + 1.f / 6;
  p = p * r + 0.5f;
  p = p * r * r + r + 1.f;
  const std::int32_t power = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kShift);
  const float two_n = std::bit_cast<float>((power + 127) * (1 << 23));
  return x < -87.f ? 0.f : p * two_n;
}

}  // namespace annulus::ref
