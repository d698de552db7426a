// What checks of operations say about one tensor.
#pragma once
#include "core/tensor.h"

namespace annulus::checks {

using At = std::source_location;
using Shape = std::initializer_list<std::int64_t>;

/// A tensor that must be there, with rows that may be strided.
inline void rows(const Tensor& t, DType type, Shape shape, At at = At::current()) {
  t.expect(shape, at);
  need(t.dtype == type, std::string(t.name) + ": dtype is " + name_of(t.dtype) + ", not " + name_of(type),
       at);
  need(t.data != nullptr || t.size() == 0, std::string(t.name) + ": missing", at);
  need(t.shape[0] <= 1 || t.stride() >= t.row_size(), std::string(t.name) + ": rows overlap", at);
}

/// The same, contiguous.
inline void whole(const Tensor& t, DType type, Shape shape, At at = At::current()) {
  rows(t, type, shape, at);
  need(t.contiguous(), std::string(t.name) + ": rows must not be strided", at);
}

inline void whole_or_null(const Tensor& t, DType type, Shape shape, At at = At::current()) {
  if (t) whole(t, type, shape, at);
}

/// The compute type of a call.
inline DType compute(const Tensor& t, At at = At::current()) {
  need(t.dtype == DType::f32 || t.dtype == DType::bf16,
       std::string(t.name) + ": dtype is " + name_of(t.dtype) + ", not f32 or bf16", at);
  return t.dtype;
}

/// `t` is in f32 or in `T`.
inline DType f32_or(const Tensor& t, DType T, At at = At::current()) {
  need(t.dtype == DType::f32 || t.dtype == T,
       std::string(t.name) + ": dtype is neither f32 nor the compute type", at);
  return t.dtype;
}

inline void rank(const Tensor& t, int want, At at = At::current()) {
  need(t.rank == want,
       std::string(t.name) + ": has " + std::to_string(t.rank) + " dimensions, not " + std::to_string(want),
       at);
}

}  // namespace annulus::checks
