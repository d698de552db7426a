// Tensors of a test on any backend, each between two fences.
#pragma once
#include <functional>
#include <span>
#include <vector>
#include "ops/backend.h"

namespace annulus::test {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using Shape = std::initializer_list<std::int64_t>;

/// Places tensors in a backend's memory. Bytes before and after each tensor, and between its rows where they
/// are strided, are filled with a pattern that nobody may touch.
class Device {
 public:
  explicit Device(Backend& backend) : backend_(backend) {}
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  Ops& ops() const { return backend_.ops(); }
  /// Values in the type `type` (floats round to bf16); rows lie `gap` elements apart.
  Tensor in(const char* name, DType type, Shape, const Floats&, std::int64_t gap = 0);
  Tensor in(const char* name, Shape, const std::vector<std::int32_t>&);
  Tensor in(const char* name, Shape, const std::vector<std::int64_t>&);
  Tensor in(const char* name, Shape, const Doubles&);
  /// Full of NaN: an element that is read before it is written, or never written, shows.
  Tensor out(const char* name, DType type, Shape, std::int64_t gap = 0);
  Tensor bytes(const char* name, std::int64_t count) { return out(name, DType::u8, {count}); }

  /// The elements of a tensor, or of a view, made here (f32, bf16, or i32 and i64 below 2^24; f64).
  Floats floats(const Tensor&);
  Doubles doubles(const Tensor&);
  /// Nothing but tensors' elements has been written since they were made.
  bool intact();

 private:
  struct Buffer {
    Tensor tensor;
    Tensor all;  // u8: fence, rows with their gaps, fence
  };
  Tensor place(const char* name, DType type, Shape, std::int64_t gap, const void* elements);
  std::vector<char> read(const Buffer&);
  const Buffer& buffer_of(const Tensor&) const;
  template <class T>
  std::vector<T> elements(const Tensor&);

  Backend& backend_;
  std::vector<Buffer> buffers_;
};

/// Uploads inputs, calls an operation, returns the tensors that it wrote.
using Operation = std::function<std::vector<Tensor>(Device&)>;

/// Runs an operation twice on fresh tensors; checks that fences are intact and that bits agree.
std::vector<Floats> run_twice(Backend&, const Operation&);

}  // namespace annulus::test
