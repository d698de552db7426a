// Text from a file, made fit for a message.
#pragma once
#include <string>

namespace annulus {

/// Control characters become spaces; what is longer than `most` bytes is cut, between characters, and ends in
/// three dots.
inline std::string one_line(std::string text, std::size_t most = 200) {
  if (text.size() > most) {
    std::size_t end = most > 3 ? most - 3 : 0;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text.resize(end);
    text += "...";
  }
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  return text;
}

}  // namespace annulus
