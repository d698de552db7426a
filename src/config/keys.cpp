#include "config/keys.h"
#include <algorithm>
#include "config/values.h"

namespace annulus {
namespace {

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

/// What a file or a flag cannot hold so that printing and reading back is the identity.
std::string unprintable(const std::string& text) {
  if (text.empty()) return "it is empty";
  for (const char c : text) {
    if (c == '#' || c == ';' || c == '"' || c == '\'') return std::string("it contains ") + c;
    if (static_cast<unsigned char>(c) < 32 || c == 127) return "it contains a control character";
  }
  if (text.front() == ' ' || text.back() == ' ') return "it begins or ends with a space";
  return {};
}

std::string store(std::string* to, const Key& k, const std::string& text) {
  if (!k.bounds.words.empty() && !has_word(k.bounds.words, text)) return "it must be " + allowed(k);
  *to = text;
  return {};
}
std::string store(std::int64_t* to, const Key& k, const std::string& text) {
  const auto n = whole_number(text);
  if (!n || *n < k.bounds.least || *n > k.bounds.most) return "it must be " + allowed(k);
  *to = *n;
  return {};
}
std::string store(double* to, const Key& k, const std::string& text) {
  const auto v = finite_number(text);
  const bool inside = v && (k.bounds.low_open ? *v > k.bounds.low : *v >= k.bounds.low) &&
                      (k.bounds.high_open ? *v < k.bounds.high : *v <= k.bounds.high);
  if (!inside) return "it must be " + allowed(k);
  *to = *v;
  return {};
}
std::string store(bool* to, const Key& k, const std::string& text) {
  const auto b = truth(text);
  if (!b) return "it must be " + allowed(k);
  *to = *b;
  return {};
}
std::string store(std::vector<std::string>* to, const Key&, const std::string& text) {
  to->push_back(text);
  return {};
}

std::vector<std::string> written(const std::string* v) {
  return v->empty() ? std::vector<std::string>{} : std::vector<std::string>{*v};
}
std::vector<std::string> written(const std::int64_t* v) {
  return {std::to_string(*v)};
}
std::vector<std::string> written(const double* v) {
  return {shortest(*v)};
}
std::vector<std::string> written(const bool* v) {
  return {*v ? "true" : "false"};
}
std::vector<std::string> written(const std::vector<std::string>* v) {
  return *v;
}

std::string range_text(const Key& k, const std::string*) {
  if (k.bounds.words.empty()) return "a text without # ; quotes or edge spaces";
  std::string list(k.bounds.words), out;
  for (const char c : list) out += c == ' ' ? std::string(", ") : std::string(1, c);
  const std::size_t last = out.rfind(", ");
  return last == std::string::npos ? out : out.replace(last, 2, " or ");
}
std::string range_text(const Key& k, const std::int64_t*) {
  return "a whole number from " + std::to_string(k.bounds.least) + " to " + std::to_string(k.bounds.most);
}
std::string range_text(const Key& k, const double*) {
  return std::string("a finite number ") + (k.bounds.low_open ? "above " : "from ") + shortest(k.bounds.low) +
         (k.bounds.high_open ? " to below " : " to ") + shortest(k.bounds.high);
}
std::string range_text(const Key&, const bool*) {
  return "true or false";
}
std::string range_text(const Key&, const std::vector<std::string>*) {
  return "texts without # ; quotes or edge spaces, one line or flag each";
}

}  // namespace

const std::vector<Key>& keys() {
  static const std::vector<Key> table = key_table();
  return table;
}

const Key* find_key(std::string_view full) {
  for (const Key& k : keys())
    if (k.full() == full) return &k;
  return nullptr;
}

const Key& nearest_key(std::string_view full) {
  const std::string_view bare =
      full.substr(full.find('.') == std::string_view::npos ? 0 : full.find('.') + 1);
  const auto distance = [&](const Key& k) {
    // The right name in the wrong section is nearer than a wrong name in the right one.
    return std::min(2 * edit_distance(full, k.full()), 1 + 2 * edit_distance(bare, k.name));
  };
  return *std::min_element(keys().begin(), keys().end(),
                           [&](const Key& a, const Key& b) { return distance(a) < distance(b); });
}

std::string allowed(const Key& k) {
  RunConfig c;
  return std::visit([&](auto* p) { return range_text(k, p); }, k.at(c));
}

std::string read_value(const Key& k, const std::string& text, RunConfig& into) {
  if (const std::string why = unprintable(text); !why.empty()) return why + "; it must be " + allowed(k);
  return std::visit([&](auto* p) { return store(p, k, text); }, k.at(into));
}

std::vector<std::string> written_values(const Key& k, const RunConfig& config) {
  RunConfig copy = config;
  return std::visit([](auto* p) { return written(p); }, k.at(copy));
}

}  // namespace annulus
