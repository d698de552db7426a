#include "data/tokenizer/byte_level.h"
#include <array>

namespace annulus {
namespace {

constexpr int kCharacters = 0x100 + 68;  // 68 bytes are not printable

constexpr bool printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/// The byte of each code point, or -1.
constexpr std::array<std::int16_t, kCharacters> bytes_of_code_points() {
  std::array<std::int16_t, kCharacters> out{};
  out.fill(-1);
  int next = 0x100;
  for (int b = 0; b < 256; ++b)
    out[static_cast<std::size_t>(printable(b) ? b : next++)] = static_cast<std::int16_t>(b);
  return out;
}

constexpr auto kByteOf = bytes_of_code_points();

}  // namespace

std::string character_of_byte(std::uint8_t byte) {
  std::uint32_t c = 0;
  while (kByteOf[c] != byte) ++c;
  if (c < 0x80) return {static_cast<char>(c)};
  return {static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3F))};
}

std::optional<std::string> bytes_of_token(std::string_view token) {
  std::string out;
  for (std::size_t i = 0; i < token.size(); ++i) {
    std::uint32_t c = static_cast<std::uint8_t>(token[i]);
    if (c >= 0x80) {  // all characters of the table have at most two bytes
      if (c < 0xC2 || c >= 0xE0 || i + 1 == token.size()) return std::nullopt;
      c = ((c & 0x1F) << 6) | (static_cast<std::uint8_t>(token[++i]) & 0x3F);
    }
    if (c >= kCharacters || kByteOf[c] < 0) return std::nullopt;
    out += static_cast<char>(kByteOf[c]);
  }
  return out;
}

}  // namespace annulus
