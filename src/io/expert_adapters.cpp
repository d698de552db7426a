#include "io/expert_adapters.h"
#include <algorithm>
#include "core/bf16.h"

namespace annulus {
namespace {

constexpr std::int64_t kBlock = std::int64_t{1} << 20;  // elements that are read at a time
constexpr std::string_view kB = ".lora_B.weight";

/// Puts elements into a range of the result, in its type; what lies outside is left out.
class Range {
 public:
  Range(std::int64_t from, std::int64_t count, const Tensor& to) : from_(from), count_(count), to_(to) {}
  void put(std::int64_t at, float value) const {
    const std::int64_t i = at - from_;
    if (i < 0 || i >= count_) return;
    if (to_.dtype == DType::f32)
      to_.as<float>()[i] = value;
    else
      to_.as<bf16>()[i] = narrow(value);
  }

 private:
  std::int64_t from_, count_;
  const Tensor& to_;
};

class Buffer {
 public:
  /// [from, from + count) as read gives them.
  const float* read(const ReadElements& read, std::int64_t from, std::int64_t count) {
    values_.resize(static_cast<std::size_t>(count));
    read(from, count, make_tensor("adapter", values_.data(), DType::f32, {count}));
    return values_.data();
  }

 private:
  std::vector<float> values_;
};

}  // namespace

bool is_expert_adapter(const std::string& name) {
  return name.find(".mlp.experts.base_layer.lora_") != std::string::npos ||
         name.find(".mlp.experts.lora_") != std::string::npos;
}

Shape stack_shape(const std::string& name, const Shape& matrix, std::int64_t rank) {
  if (matrix.size() != 2 || rank < 1) return matrix;
  const bool b = name.ends_with(kB);
  const std::int64_t joined = matrix[b ? 1 : 0];
  if (joined % rank != 0) return matrix;
  return b ? Shape{joined / rank, matrix[0], rank} : Shape{joined / rank, rank, matrix[1]};
}

Shape matrix_shape(const std::string& name, const Shape& stack) {
  if (stack.size() != 3) return stack;
  return name.ends_with(kB) ? Shape{stack[1], stack[0] * stack[2]} : Shape{stack[0] * stack[1], stack[2]};
}

void stack_from_matrix(const Shape& stack, const ReadElements& read, std::int64_t from, std::int64_t count,
                       const Tensor& to) {
  if (count == 0) return;
  const std::int64_t E = stack[0], out = stack[1], r = stack[2], expert = out * r, row = r * E;
  const std::int64_t first = from / expert, last = (from + count - 1) / expert;
  // Of a single expert only the rows that are asked for.
  const bool one = first == last;
  const std::int64_t begin = one ? from % expert / r : 0;
  const std::int64_t end = one ? (from + count - 1) % expert / r + 1 : out;
  const Range range(from, count, to);
  const std::int64_t rows = std::max<std::int64_t>(1, kBlock / row);
  Buffer buffer;
  for (std::int64_t o = begin; o < end; o += rows) {
    const std::int64_t n = std::min(rows, end - o);
    const float* b = buffer.read(read, o * row, n * row);
    for (std::int64_t e = first; e <= last; ++e)
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < r; ++j) range.put((e * out + o + i) * r + j, b[i * row + j * E + e]);
  }
}

void matrix_from_stack(const Shape& stack, const ReadElements& read, std::int64_t from, std::int64_t count,
                       const Tensor& to) {
  if (count == 0) return;
  const std::int64_t E = stack[0], out = stack[1], r = stack[2], row = r * E;
  const std::int64_t begin = from / row, rows = (from + count - 1) / row + 1 - begin;
  const Range range(from, count, to);
  Buffer buffer;
  for (std::int64_t e = 0; e < E; ++e) {
    const float* b = buffer.read(read, (e * out + begin) * r, rows * r);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < r; ++j) range.put((begin + i) * row + j * E + e, b[i * r + j]);
  }
}

}  // namespace annulus
