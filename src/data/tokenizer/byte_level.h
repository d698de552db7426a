// How tokenizer.json files write bytes: each of the 256 as one printable character.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace annulus {

/// The character that stands for a byte, in UTF-8: itself where it is printable ASCII or Latin-1, else one
/// from U+0100 on, in the bytes' order (a space is U+0120).
std::string character_of_byte(std::uint8_t byte);

/// The bytes that a vocabulary's token stands for; none when one of its characters stands for no byte.
std::optional<std::string> bytes_of_token(std::string_view token);

}  // namespace annulus
