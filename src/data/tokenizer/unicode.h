// UTF-8 and its canonical composition (NFC).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace annulus {

/// The first byte that is no valid UTF-8 (overlong forms, surrogates and what is beyond U+10FFFF are not);
/// -1 when all is.
std::int64_t first_invalid_utf8(std::string_view text);

/// The code point that begins at `at` of valid UTF-8; moves `at` behind it.
std::uint32_t next_code_point(std::string_view text, std::size_t& at);
void append_code_point(std::uint32_t, std::string& to);

/// Whether the character is known never to change under NFC and never to join what stands before it: a text
/// may be cut before it. Not all that are so.
bool nfc_cuts_before(std::uint32_t code_point);

/// `text` (valid UTF-8) in normalization form C: the text itself where it is in that form already, else what
/// is now in `buffer`.
std::string_view nfc(std::string_view text, std::string& buffer);

}  // namespace annulus
