// Elements of weights on their way between files and host memory.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
#include "core/tensor.h"
#include "io/file.h"

namespace annulus {

/// How a weight lies in a file; the names are those of safetensors.
enum class Stored : std::uint8_t { F32, BF16, F16 };
inline std::int64_t bytes_of(Stored s) {
  return s == Stored::F32 ? 4 : 2;
}
const char* name_of(Stored);
/// True and the type when it is one that weights can have.
bool parse_stored(const std::string& name, Stored* type);

/// IEEE binary16: widening is exact, narrowing rounds to nearest even, overflow gives infinity, NaN stays
/// NaN.
float half_to_float(std::uint16_t);
std::uint16_t float_to_half(float);

/// `count` elements that lie as `type` at byte `offset`, into the first `count` of `to` (f32 or bf16).
void read_elements(const File&, std::int64_t offset, Stored type, std::int64_t count, const Tensor& to);

/// The number of elements of a shape; -1 when a dimension is negative or it overflows.
std::int64_t shape_size(const std::vector<std::int64_t>& shape);

}  // namespace annulus
