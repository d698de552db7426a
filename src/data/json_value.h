// A JSON value of a row, kept so that it can be written as Python's json module would write it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace annulus {

struct JsonValue {
  enum class Kind : std::uint8_t { null, truth, number, text, list, object };
  Kind kind = Kind::null;
  bool truth = false;
  std::string text;                                        // of a text; or a number, as Python prints it
  std::vector<JsonValue> items;                            // of a list
  std::vector<std::pair<std::string, JsonValue>> members;  // of an object, in order

  bool is(Kind k) const { return kind == k; }
  /// A member, or null when there is none or it is null.
  const JsonValue* find(std::string_view key) const;
  /// "a text", "a list", ...: for messages.
  const char* kind_name() const;
};

/// A number with a fraction or an exponent, as Python prints it.
std::string python_float(double);
/// json.dumps(value, ensure_ascii=False), on one line; or with an indent of so many spaces.
std::string python_json(const JsonValue&, int indent = 0);

/// Python's str.strip(): Unicode white space and the separators 0x1C to 0x1F. `text` is valid UTF-8.
std::string_view python_strip(std::string_view text);
/// str.lstrip("\n"), str.rstrip("\n").
std::string_view without_newlines_before(std::string_view);
std::string_view without_newlines_behind(std::string_view);

}  // namespace annulus
