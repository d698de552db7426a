// Tokenizer files write expressions for Oniguruma. Nearly all of what they use means the same to PCRE2; this
// rewrites what does not, and lets nothing through that it does not know.
#include <algorithm>
#include <array>
#include "core/check.h"
#include "core/one_line.h"
#include "data/tokenizer/pattern.h"

namespace annulus {
namespace {

constexpr std::string_view kSpaces =  // White_Space
    R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kOthers =  // the rest
    R"(\x{0}-\x{8}\x{E}-\x{1F}\x{21}-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027})"
    R"(\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{D7FF}\x{E000}-\x{10FFFF})";
constexpr std::array<std::string_view, 7> kGroups = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"};

bool is_hex(char c) {
  return std::string_view("0123456789abcdefABCDEF").find(c) != std::string_view::npos;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Translation {
 public:
  Translation(const std::string& expression, const std::string& where) : in_(expression), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\')
        escape(false);
      else if (c == '[')
        set();
      else if (c == '(')
        group();
      else if (c == '{')
        repeat();
      else
        copy(1);
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::size_t from, std::size_t length) const {
    input_error(where_ + ": \"" + one_line(in_.substr(from, length)) + "\" in the expression \"" +
                one_line(in_) + "\" is not supported; give rows of input_ids instead");
  }
  void copy(std::size_t length) {
    out_.append(in_, at_, length);
    at_ += length;
  }
  char peek(std::size_t ahead) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }

  void escape(bool in_set) {
    const char c = peek(1);
    const auto put = [&](std::string_view text) {
      out_.append(text);
      at_ += 2;
    };
    const auto space = [&](std::string_view members) {
      if (!in_set) out_ += '[';
      put(members);
      if (!in_set) out_ += ']';
    };
    if (c == 's') return space(kSpaces);
    if (c == 'S') return space(kOthers);
    if (c == 'd') return put("\\p{Nd}");
    if (c == 'D') return put("\\P{Nd}");
    if (c == 'v') return put("\\x{B}");  // one character there, a class in PCRE2
    if (c == 'p' || c == 'P') return property();
    if (c == 'u') return hex(4);
    if (c == 'x') return peek(2) == '{' ? braced_hex() : hex(2);
    const auto byte = static_cast<unsigned char>(c);
    const bool letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || is_digit(c);
    const bool control = c == 'r' || c == 'n' || c == 't' || c == 'f';
    if (c == '\0' || byte >= 0x80 || (letter && !control)) refuse(at_, 2);
    copy(2);
  }

  void hex(std::size_t digits) {
    const std::size_t from = at_ + 2;
    for (std::size_t i = 0; i < digits; ++i)
      if (!is_hex(peek(2 + i))) refuse(at_, 2 + digits);
    // A byte beyond ASCII is part of a character there and a whole one here.
    if (digits == 2 && peek(2) > '7') refuse(at_, 4);
    out_.append("\\x{").append(in_, from, digits).append("}");
    at_ = from + digits;
  }
  void braced_hex() {
    const std::size_t end = in_.find('}', at_);
    if (end == std::string::npos || end == at_ + 3 ||
        !std::all_of(in_.begin() + static_cast<std::ptrdiff_t>(at_ + 3),
                     in_.begin() + static_cast<std::ptrdiff_t>(end), is_hex))
      refuse(at_, 8);
    copy(end + 1 - at_);
  }
  void property() {
    const std::size_t end = in_.find('}', at_);
    if (peek(2) != '{' || end == std::string::npos) refuse(at_, 3);
    copy(end + 1 - at_);
  }

  /// [...]: sets in sets and && mean something there and nothing in PCRE2.
  void set() {
    const std::size_t from = at_;
    copy(1);
    if (peek(0) == '^') copy(1);
    if (peek(0) == ']') refuse(from, at_ + 1 - from);
    while (peek(0) != ']') {
      if (at_ >= in_.size()) refuse(from, in_.size() - from);
      if (peek(0) == '[') refuse(at_, 2);
      if (peek(0) == '&' && peek(1) == '&') refuse(at_, 2);
      if (peek(0) == '\\')
        escape(true);
      else
        copy(1);
    }
    copy(1);
  }

  void group() {
    if (peek(1) != '?' && peek(1) != '*') return copy(1);
    for (const std::string_view opens : kGroups)
      if (in_.compare(at_, opens.size(), opens) == 0) return copy(opens.size());
    refuse(at_, 4);
  }

  /// {n}, {n,}, {n,m}; a sign behind them means other things here and there, and so does {,m}.
  void repeat() {
    const std::size_t end = in_.find('}', at_);
    if (end == std::string::npos || !is_digit(peek(1)) ||
        !std::all_of(in_.begin() + static_cast<std::ptrdiff_t>(at_ + 1),
                     in_.begin() + static_cast<std::ptrdiff_t>(end),
                     [](char c) { return is_digit(c) || c == ','; }))
      refuse(at_, 6);
    const char sign = end + 1 < in_.size() ? in_[end + 1] : '\0';
    if (sign == '+' || sign == '?') refuse(at_, end + 2 - at_);
    copy(end + 1 - at_);
  }

  const std::string& in_;
  const std::string& where_;
  std::string out_;
  std::size_t at_ = 0;
};

}  // namespace

std::string translate_expression(const std::string& expression, const std::string& where) {
  return Translation(expression, where).run();
}

std::string quote_expression(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\^$.[]|()?*+{}&").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace annulus
