#include "io/elements.h"
#include <algorithm>
#include <bit>
#include "core/bf16.h"

namespace annulus {
namespace {

// Elements converted at a time.
constexpr std::int64_t kChunk = std::int64_t{1} << 20;

void put(float v, float* to) {
  *to = v;
}
void put(float v, bf16* to) {
  *to = narrow(v);
}

template <class To>
void convert(const void* from, Stored type, std::int64_t count, To* to) {
  const auto* bits = static_cast<const std::uint16_t*>(from);
  switch (type) {
    case Stored::F32:
      for (std::int64_t i = 0; i < count; ++i) put(static_cast<const float*>(from)[i], to + i);
      break;
    case Stored::BF16:
      for (std::int64_t i = 0; i < count; ++i) put(widen(bf16{bits[i]}), to + i);
      break;
    case Stored::F16:
      for (std::int64_t i = 0; i < count; ++i) put(half_to_float(bits[i]), to + i);
      break;
  }
}

template <class To>
void read_converted(const File& file, std::int64_t offset, Stored type, std::int64_t count, To* to) {
  std::vector<std::uint32_t> chunk(static_cast<std::size_t>(std::min(count, kChunk)));
  for (std::int64_t at = 0; at < count; at += kChunk) {
    const std::int64_t n = std::min(kChunk, count - at);
    file.read(offset + at * bytes_of(type), n * bytes_of(type), chunk.data());
    convert(chunk.data(), type, n, to + at);
  }
}

}  // namespace

const char* name_of(Stored s) {
  constexpr const char* names[] = {"F32", "BF16", "F16"};
  return names[static_cast<int>(s)];
}

bool parse_stored(const std::string& name, Stored* type) {
  for (Stored s : {Stored::F32, Stored::BF16, Stored::F16})
    if (name == name_of(s)) {
      *type = s;
      return true;
    }
  return false;
}

float half_to_float(std::uint16_t h) {
  const std::uint32_t sign = std::uint32_t{h & 0x8000u} << 16, exponent = (h >> 10) & 31u,
                      fraction = h & 1023u;
  if (exponent == 0) {  // zero or a denormal: fraction * 2^-24, exact in f32
    const float v = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -v : v;
  }
  const std::uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

std::uint16_t float_to_half(float v) {
  const auto u = std::bit_cast<std::uint32_t>(v);
  const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
  const std::uint32_t size = u & 0x7FFFFFFFu;
  if (size > 0x7F800000u) return sign | 0x7E00u | static_cast<std::uint16_t>((size >> 13) & 0x3FFu);
  if (size >= 0x47800000u) return sign | 0x7C00u;  // 2^16 and above, infinity
  if (size < 0x38800000u) {
    // Below 2^-14: adding 0.5 puts the unit of a denormal half (2^-24) at f32's last bit, rounding to even.
    const float shifted = std::bit_cast<float>(size) + 0.5f;
    return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u);
  }
  // Rounding may carry into the exponent, up to infinity: that is right.
  const std::uint32_t rounded = size + 0xFFFu + ((size >> 13) & 1u);
  return sign | static_cast<std::uint16_t>((rounded - 0x38000000u) >> 13);
}

void read_elements(const File& file, std::int64_t offset, Stored type, std::int64_t count, const Tensor& to) {
  need(to.place == Place::host && to.contiguous() && to.size() >= count,
       std::string(to.name) + ": weights are read into contiguous host memory of their size");
  const bool same =
      (to.dtype == DType::f32 && type == Stored::F32) || (to.dtype == DType::bf16 && type == Stored::BF16);
  if (same)
    file.read(offset, count * bytes_of(type), to.data);
  else if (to.dtype == DType::f32)
    read_converted(file, offset, type, count, to.as<float>());
  else
    read_converted(file, offset, type, count, to.as<bf16>());
}

std::int64_t shape_size(const std::vector<std::int64_t>& shape) {
  std::int64_t n = 1;
  bool zero = false, over = false;
  for (std::int64_t d : shape) {
    if (d < 0) return -1;
    if (d == 0)
      zero = true;
    else
      over = over || __builtin_mul_overflow(n, d, &n);
  }
  return over ? -1 : zero ? 0 : n;
}

}  // namespace annulus
