// A tensor here is a named view: where, what type, what shape. It owns nothing and is passed by value.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include "core/check.h"

namespace annulus {

enum class DType : std::uint8_t { f32, bf16, f64, i32, i64, u8 };
enum class Place : std::uint8_t { host, device };

constexpr std::int64_t bytes_of(DType t) {
  switch (t) {
    case DType::u8:
      return 1;
    case DType::bf16:
      return 2;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f64:
    case DType::i64:
      return 8;
  }
  return 0;
}

constexpr const char* name_of(DType t) {
  constexpr const char* names[] = {"f32", "bf16", "f64", "i32", "i64", "u8"};
  return names[static_cast<int>(t)];
}

/// Storage only; arithmetic is done in float (core/bf16.h).
struct bf16 {
  std::uint16_t bits;
};

template <class T>
inline constexpr DType dtype_of = [] {
  if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, bf16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return DType::i32;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return DType::i64;
  else {
    static_assert(std::is_same_v<T, std::uint8_t>);
    return DType::u8;
  }
}();

struct Tensor {
  const char* name = "?";                         // for messages; a string literal
  void* data = nullptr;                           // null: "no such tensor" where a field is optional
  std::array<std::int64_t, 4> shape{1, 1, 1, 1};  // row-major
  std::int8_t rank = 0;
  DType dtype = DType::f32;
  Place place = Place::host;
  std::int64_t row_stride = 0;  // elements from one index of dimension 0 to the next; 0: contiguous

  explicit operator bool() const { return data != nullptr; }
  std::int64_t size() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
  std::int64_t bytes() const { return size() * bytes_of(dtype); }
  std::int64_t row_size() const { return shape[1] * shape[2] * shape[3]; }  // elements of one row
  std::int64_t stride() const { return row_stride != 0 ? row_stride : row_size(); }
  bool contiguous() const { return row_stride == 0 || row_stride == row_size() || shape[0] <= 1; }

  /// Typed pointer; fails by name when the dtype is not T.
  template <class T>
  T* as(std::source_location at = std::source_location::current()) const {
    need(dtype == dtype_of<T>,
         std::string(name) + ": dtype is " + name_of(dtype) + ", not " + name_of(dtype_of<T>), at);
    return static_cast<T*>(data);
  }

  /// Checks the shape where it is used: `q.expect({Tl, H, D})`.
  const Tensor& expect(std::initializer_list<std::int64_t> want,
                       std::source_location at = std::source_location::current()) const {
    bool same = static_cast<int>(want.size()) == rank;
    int d = 0;
    for (std::int64_t w : want) same = same && d < 4 && shape[static_cast<std::size_t>(d++)] == w;
    need(same, std::string(name) + ": wrong shape", at);
    return *this;
  }

  /// `count` rows from `begin` of dimension 0.
  Tensor rows(std::int64_t begin, std::int64_t count) const;
  /// `count` entries from `begin` of dimension 1 of (N, h, D): keeps the row stride.
  Tensor heads(std::int64_t begin, std::int64_t count) const;
  /// `count` columns from `begin` of a matrix (N, C): keeps the row stride.
  Tensor columns(std::int64_t begin, std::int64_t count) const;
  /// The same contiguous elements under another shape.
  Tensor view(std::initializer_list<std::int64_t> to) const;
  /// `count` elements from element `begin` of a contiguous tensor, as a vector.
  Tensor span(std::int64_t begin, std::int64_t count) const;
};

Tensor make_tensor(const char* name, void* data, DType dtype, std::initializer_list<std::int64_t> shape,
                   Place place = Place::host);

}  // namespace annulus
