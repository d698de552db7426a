// SHA-256, as `sha256sum` prints it: to know a text again.
#pragma once
#include <string>
#include <string_view>

namespace annulus {

/// 64 hexadecimal digits.
std::string sha256(std::string_view bytes);

}  // namespace annulus
