#include "data/json_value.h"
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include "data/tokenizer/unicode.h"

namespace annulus {
namespace {

void write_text(const std::string& text, std::string& to) {
  static constexpr char kHex[] = "0123456789abcdef";
  to += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        to += "\\\"";
        break;
      case '\\':
        to += "\\\\";
        break;
      case '\n':
        to += "\\n";
        break;
      case '\r':
        to += "\\r";
        break;
      case '\t':
        to += "\\t";
        break;
      case '\b':
        to += "\\b";
        break;
      case '\f':
        to += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20)
          to += c;
        else
          to.append("\\u00").append(1, kHex[c >> 4]).append(1, kHex[c & 15]);
    }
  }
  to += '"';
}

void write(const JsonValue& v, int indent, int depth, std::string& to) {
  const auto line = [&](int d) {
    if (indent > 0)
      to.append("\n").append(static_cast<std::size_t>(indent) * static_cast<std::size_t>(d), ' ');
  };
  const char* comma = indent > 0 ? "," : ", ";
  bool first = true;
  switch (v.kind) {
    case JsonValue::Kind::null:
      to += "null";
      break;
    case JsonValue::Kind::truth:
      to += v.truth ? "true" : "false";
      break;
    case JsonValue::Kind::number:
      to += v.text;
      break;
    case JsonValue::Kind::text:
      write_text(v.text, to);
      break;
    case JsonValue::Kind::list:
      to += '[';
      for (const JsonValue& item : v.items) {
        if (!std::exchange(first, false)) to += comma;
        line(depth + 1);
        write(item, indent, depth + 1, to);
      }
      if (!v.items.empty()) line(depth);
      to += ']';
      break;
    case JsonValue::Kind::object:
      to += '{';
      for (const auto& [key, value] : v.members) {
        if (!std::exchange(first, false)) to += comma;
        line(depth + 1);
        write_text(key, to);
        to += ": ";
        write(value, indent, depth + 1, to);
      }
      if (!v.members.empty()) line(depth);
      to += '}';
      break;
  }
}

bool python_space(std::uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const auto& [name, value] : members)
    if (name == key) return value.is(Kind::null) ? nullptr : &value;
  return nullptr;
}

const char* JsonValue::kind_name() const {
  static constexpr const char* kNames[] = {"null",   "true or false", "a number",
                                           "a text", "a list",        "an object"};
  return kNames[static_cast<int>(kind)];
}

std::string python_float(double value) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string shortest(buffer, end.ptr);  // "-1.25e-07"
  const std::size_t e = shortest.find('e');
  const int exponent = std::atoi(shortest.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) return shortest;
  std::string out = value < 0 || shortest[0] == '-' ? "-" : "", digits;
  for (std::size_t i = 0; i < e; ++i)
    if (shortest[i] >= '0' && shortest[i] <= '9') digits += shortest[i];
  const auto whole = static_cast<std::size_t>(std::max(exponent + 1, 0));
  if (exponent < 0) digits.insert(0, static_cast<std::size_t>(-exponent - 1), '0');
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  out.append(whole == 0 ? "0" : digits.substr(0, whole)).append(".");
  return out.append(digits.size() > whole ? digits.substr(whole) : "0");
}

std::string python_json(const JsonValue& value, int indent) {
  std::string out;
  write(value, indent, 0, out);
  return out;
}

std::string_view python_strip(std::string_view text) {
  std::size_t begin = 0, end = 0;  // end: behind the last character that is no space
  bool started = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t from = at;
    if (python_space(next_code_point(text, at))) continue;
    if (!started) begin = from;
    started = true;
    end = at;
  }
  return text.substr(begin, started ? end - begin : 0);
}

std::string_view without_newlines_before(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

std::string_view without_newlines_behind(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

}  // namespace annulus
