// Every key of the run's configuration, described once: reading, ranges, help and printing all come from
// here.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>
#include "config/run_config.h"

namespace annulus {

/// Where a key's value lies in a RunConfig; its type is the key's type.
using Slot = std::variant<std::string*, std::int64_t*, double*, bool*, std::vector<std::string>*>;

/// What a key may be; the fields of its type count.
struct Bounds {
  std::string_view words = {};               // text: the allowed ones, separated by spaces; empty: any text
  std::int64_t least = 0, most = 0;          // whole numbers
  double low = 0, high = 0;                  // numbers
  bool low_open = false, high_open = false;  // low or high itself is outside
};

struct Key {
  std::string_view section, name;
  Slot (*at)(RunConfig&);
  std::string_view help;
  Bounds bounds = {};

  std::string full() const { return std::string(section) + "." + std::string(name); }
};

std::vector<Key> key_table();  // key_table.cpp
/// In the order of printing.
const std::vector<Key>& keys();
const Key* find_key(std::string_view full);
/// The known key that looks most like `full` (with or without its section).
const Key& nearest_key(std::string_view full);

/// What the key takes, in words: "a whole number from 2 to 1073741824".
std::string allowed(const Key&);
/// The reason why `text` cannot be the key's value (or one element of its list); empty when it can.
/// On success the value is stored (a list grows by it).
std::string read_value(const Key&, const std::string& text, RunConfig& into);
/// The key's values as text, one an element of a list; nothing for an empty text or list.
std::vector<std::string> written_values(const Key&, const RunConfig&);

}  // namespace annulus
