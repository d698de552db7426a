// Device memory of one case, filled with what a training step would hold: normal numbers, never zeros.
#pragma once
#include <initializer_list>
#include <map>
#include <tuple>
#include <vector>
#include "ops/backend.h"

namespace annulus::bench {

class Pool {
 public:
  explicit Pool(Backend&);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  Tensor empty(const char* name, DType, std::initializer_list<std::int64_t> shape);
  Tensor pinned(const char* name, DType, std::initializer_list<std::int64_t> shape);
  /// Normal numbers times `scale`; in f32 or bf16.
  Tensor normal(const char* name, DType, std::initializer_list<std::int64_t> shape, double scale = 1);
  /// Their squares, for second moments.
  Tensor squares(const char* name, DType, std::initializer_list<std::int64_t> shape);
  Tensor scratch(std::int64_t bytes) { return empty("scratch", DType::u8, {bytes}); }

  template <class T>
  Tensor upload(const char* name, const std::vector<T>& values) {
    return upload_bytes(name, dtype_of<T>, values.data(), static_cast<std::int64_t>(values.size()));
  }
  /// `count` elements from `begin`, widened to float.
  std::vector<float> download(const Tensor&, std::int64_t begin, std::int64_t count);

  /// Gives all tensors back; what comes next is filled as if it were the first.
  void clear();

 private:
  enum class Law { normal, square };
  using Key = std::tuple<DType, Law, double>;
  struct Held {
    Memory* memory;
    void* data;
  };
  Tensor take(Memory&, const char* name, DType, std::initializer_list<std::int64_t> shape,
              std::vector<Held>& into);
  Tensor upload_bytes(const char* name, DType, const void* values, std::int64_t count);
  const Tensor& pattern(const Key&);
  Tensor fill(const Tensor&, const Key&);

  Backend& backend_;
  std::vector<Held> held_, kept_;
  std::map<Key, Tensor> patterns_;
  std::vector<float> numbers_;  // one period of normal numbers
  std::int64_t serial_ = 0;
};

}  // namespace annulus::bench
