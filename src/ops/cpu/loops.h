// What the plain loops share. `omp simd` lets the compiler keep a sum in several lanes; the order is still
// fixed, so the same program gives the same bits.
#pragma once
#include <bit>
#include <cstdint>
#include <string>
#include "core/bf16.h"

namespace annulus::ref {

/// Calls f(T{}) with the C++ type that `type` names: float or bf16.
template <class F>
void by_type(DType type, F&& f) {
  if (type == DType::f32) f(float{});
  else if (type == DType::bf16) f(bf16{});
  else fail("by_type", std::string(name_of(type)) + " is not a compute type");
}

template <class T>
void load(const T* from, std::int64_t n, float* to) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i] = widen(from[i]);
}

template <class T>
void save(const float* from, std::int64_t n, T* to) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i] = store<T>(from[i]);
}

template <class T>
double dot(const T* a, const T* b, std::int64_t n) {
  double s = 0.0;
#pragma omp simd reduction(+ : s)
  for (std::int64_t i = 0; i < n; ++i) s += double(widen(a[i])) * widen(b[i]);
  return s;
}

/// e^x in float for x <= 88, within 3 units in the last place; 0 below -87. No branch and no call, so that
/// loops over it vectorise: x = n ln 2 + r with |r| <= ln 2 / 2, e^r by its series to r^7 (the rest is below
/// 6e-9), times 2^n. NaN stays NaN.
inline float exp_fast(float x) {
  constexpr float kShift = 12582912.f;                  // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kLn2High = 0.693359375f;              // few bits, so n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4f;            // ln 2 - kLn2High
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
