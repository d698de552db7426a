#include "config/json_read.h"
#include <algorithm>
#include <cmath>
#include <set>
#include <vector>
#include "config/values.h"
#include "core/check.h"

namespace annulus {
namespace {

using nlohmann::ordered_json;
constexpr int kDepth = 32;
constexpr std::size_t kBytes = std::size_t{16} << 20;

/// A value for a message, cut where it is long.
std::string shown(const ordered_json& v) {
  std::string text = v.is_structured() ? std::string(v.type_name())
                                       : v.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

[[noreturn]] void wrong(const std::string& where, const std::string& key, const ordered_json& v,
                        const std::string& want) {
  input_error(where + ": " + key + " is " + shown(v) + "; it must be " + want);
}

}  // namespace

ordered_json read_json(const std::string& text, const std::string& where) {
  if (text.size() > kBytes)
    input_error(where + ": " + std::to_string(text.size()) +
                " bytes are too many for a configuration; the limit is " + std::to_string(kBytes));
  std::vector<std::set<std::string>> open;
  const auto guard = [&](int depth, ordered_json::parse_event_t event, ordered_json& value) {
    using Event = ordered_json::parse_event_t;
    if (depth > kDepth)
      input_error(where + ": nested deeper than " + std::to_string(kDepth) +
                  " levels; no model configuration is");
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key && !open.back().insert(value.get<std::string>()).second)
      input_error(where + ": the key " + shown(value) + " is there twice; leave one of them out");
    return true;
  };
  try {
    return ordered_json::parse(text, guard);
  } catch (const ordered_json::parse_error& e) {
    const std::size_t at = std::min(e.byte > 0 ? e.byte - 1 : 0, text.size());
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    input_error(where + ": not JSON at line " + std::to_string(line) + ", byte " + std::to_string(at) +
                "; mend or fetch the file again");
  } catch (const ordered_json::out_of_range&) {
    input_error(where + ": holds a number that no 64-bit type can hold; mend the file");
  }
}

JsonObject::JsonObject(const ordered_json& object, std::string where)
    : object_(&object), where_(std::move(where)) {
  if (!object.is_object()) input_error(where_ + ": is " + shown(object) + "; it must be an object in braces");
}

bool JsonObject::has(const std::string& key) const {
  const auto at = object_->find(key);
  return at != object_->end() && !at->is_null();
}

const ordered_json& JsonObject::raw(const std::string& key) const {
  if (!has(key))
    input_error(where_ + ": " + key + " is missing; add it, with the value that the model was trained with");
  return object_->at(key);
}

std::int64_t JsonObject::whole(const std::string& key, std::int64_t least, std::int64_t most) const {
  const ordered_json& v = raw(key);
  const std::string want = "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  if (!v.is_number_integer()) wrong(where_, key, v, want);
  if (v.is_number_unsigned() && v.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
    wrong(where_, key, v, want);
  const auto n = v.get<std::int64_t>();
  if (n < least || n > most) wrong(where_, key, v, want);
  return n;
}

double JsonObject::number(const std::string& key, double low, double high) const {
  const ordered_json& v = raw(key);
  const std::string want = "a number from " + shortest(low) + " to " + shortest(high);
  if (!v.is_number()) wrong(where_, key, v, want);
  const auto x = v.get<double>();
  if (!std::isfinite(x) || x < low || x > high) wrong(where_, key, v, want);
  return x;
}

bool JsonObject::truth(const std::string& key) const {
  const ordered_json& v = raw(key);
  if (!v.is_boolean()) wrong(where_, key, v, "true or false");
  return v.get<bool>();
}

std::string JsonObject::text(const std::string& key) const {
  const ordered_json& v = raw(key);
  if (!v.is_string()) wrong(where_, key, v, "a text");
  return v.get<std::string>();
}

JsonObject JsonObject::object(const std::string& key) const {
  return {raw(key), where_ + ": " + key};
}

}  // namespace annulus
