// What the plain loops share. `omp simd` lets the compiler keep a sum in several lanes; the order is still
// fixed, so the same program gives the same bits.
#pragma once
#include <cstdint>
#include <string>
#include "core/bf16.h"

namespace annulus::ref {

/// Calls f(T{}) with the C++ type that `type` names: float or bf16.
template <class F>
void by_type(DType type, F&& f) {
  if (type == DType::f32)
    f(float{});
  else if (type == DType::bf16)
    f(bf16{});
  else
    fail("by_type", std::string(name_of(type)) + " is not a compute type");
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

}  // namespace annulus::ref
