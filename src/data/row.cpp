#include "data/row.h"
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include "core/one_line.h"

namespace annulus {
namespace {

using nlohmann::json;
constexpr int kDepth = 64;

/// What the library says of a text that is no JSON, in our words.
[[noreturn]] void not_json(std::size_t position, const std::string& what, const std::string& prefix) {
  const auto says = [&](const char* part) { return what.find(part) != std::string::npos; };
  std::string why = "is not valid JSON";
  if (says("UTF-8")) why = "is not valid UTF-8";
  if (says("surrogate")) why = "has half of a surrogate pair (\\ud800 to \\udfff)";
  if (says("; expected end of input"))
    why = "has something after its first value; each line must be one object";
  if (says("out_of_range")) why = "has a number that no 64-bit type can hold";
  throw RowError{prefix + why, static_cast<std::int64_t>(position > 0 ? position - 1 : 0)};
}

/// A value as a tree. An object's repeated key keeps its last value, as in Python.
class Tree {
 public:
  explicit Tree(JsonValue& root) : root_(&root) {}
  bool done() const { return started_ && open_.empty(); }

  void add(JsonValue value) {
    const bool nests = value.is(JsonValue::Kind::list) || value.is(JsonValue::Kind::object);
    JsonValue* at = place();
    *at = std::move(value);
    if (nests) open_.push_back(at);
  }
  void key(std::string name) { key_ = std::move(name); }
  void close() { open_.pop_back(); }

 private:
  /// Where the next value goes. A list or object grows only while none of its own values is open.
  JsonValue* place() {
    started_ = true;
    if (open_.empty()) return root_;
    JsonValue& parent = *open_.back();
    if (parent.is(JsonValue::Kind::list)) return &parent.items.emplace_back();
    for (auto& [name, value] : parent.members)
      if (name == key_) return &value;
    return &parent.members.emplace_back(key_, JsonValue()).second;
  }

  JsonValue* root_;
  std::vector<JsonValue*> open_;
  std::string key_;
  bool started_ = false;
};

JsonValue of_kind(JsonValue::Kind kind) {
  JsonValue v;
  v.kind = kind;
  return v;
}
JsonValue of_text(JsonValue::Kind kind, std::string text) {
  JsonValue v = of_kind(kind);
  v.text = std::move(text);
  return v;
}
JsonValue of_truth(bool truth) {
  JsonValue v = of_kind(JsonValue::Kind::truth);
  v.truth = truth;
  return v;
}
/// A number that the library takes for a fraction: one, or a whole one beyond 64 bits, which Python keeps.
JsonValue of_fraction(double value, const std::string& written) {
  const bool whole = written.find_first_of(".eE") == std::string::npos;
  return of_text(JsonValue::Kind::number, whole ? written : python_float(value));
}

/// Keeps what the formats read and passes over the rest, whatever is in it.
class RowReader : public nlohmann::json_sax<json> {
 public:
  RowFields fields;

  bool null() override {
    if (depth_ == 1 && (list_of(key_) != nullptr || is_tree(key_))) {  // as if it were not there
      if (auto* list = list_of(key_)) list->reset();
      return true;
    }
    return leaf(JsonValue(), "null");
  }
  bool boolean(bool b) override { return leaf(of_truth(b), "true or false"); }
  bool number_integer(number_integer_t n) override { return whole(n, std::to_string(n)); }
  bool number_unsigned(number_unsigned_t n) override {
    return whole(static_cast<std::int64_t>(std::min<std::uint64_t>(n, INT64_MAX)), std::to_string(n));
  }
  bool number_float(number_float_t n, const string_t& written) override {
    return leaf(of_fraction(n, written), "a number with a fraction or beyond 64 bits");
  }
  bool binary(binary_t&) override { return scalar("binary"); }

  bool string(string_t& value) override {
    if (depth_ == 1 && key_ == "text") {
      fields.text = std::move(value);
      return true;
    }
    return leaf(of_text(JsonValue::Kind::text, std::move(value)), "a text");
  }
  bool start_object(std::size_t) override {
    if (depth_ > 0 && !grows(JsonValue::Kind::object)) scalar("an object");
    return deeper();
  }
  bool end_object() override { return closes(); }
  bool start_array(std::size_t) override {
    if (depth_ == 0) throw RowError{"is a list; each line must be one object in braces"};
    if (list_ != nullptr) return scalar("a list");
    if (auto* list = depth_ == 1 ? list_of(key_) : nullptr)
      list_ = &list->emplace();
    else if (!grows(JsonValue::Kind::list))
      scalar("a list");
    return deeper();
  }
  bool end_array() override { return closes(); }
  bool key(string_t& name) override {
    if (tree_) tree_->key(name);
    if (depth_ != 1) return true;
    if (!seen_.insert(name).second) throw RowError{"has the key \"" + one_line(name) + "\" twice"};
    fields.keys.push_back(name);
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    not_json(position, e.what(), "");
  }

 private:
  /// The list of whole numbers that a key holds; null for other keys.
  std::optional<std::vector<std::int64_t>>* list_of(const std::string& name) {
    if (name == "input_ids") return &fields.input_ids;
    if (name == "labels") return &fields.labels;
    if (name == "completion_mask") return &fields.completion_mask;
    return name == "assistant_masks" ? &fields.assistant_masks : nullptr;
  }
  static bool is_tree(const std::string& name) {
    for (const char* key :
         {"messages", "conversations", "prompt", "completion", "tools", "chat_template_kwargs"})
      if (name == key) return true;
    return false;
  }
  /// Adds a value to the tree that a key holds; false when no tree is read here.
  bool grow(JsonValue value) {
    if (!tree_) {
      if (depth_ != 1 || !is_tree(key_)) return false;
      tree_.emplace(fields.values[key_]);
    }
    tree_->add(std::move(value));
    if (tree_->done()) tree_.reset();
    return true;
  }
  bool grows(JsonValue::Kind kind) { return grow(of_kind(kind)); }
  bool leaf(JsonValue value, const char* kind) { return grow(std::move(value)) || scalar(kind); }
  bool closes() {
    if (--depth_ == 1) list_ = nullptr;
    if (tree_) {
      tree_->close();
      if (tree_->done()) tree_.reset();
    }
    return true;
  }
  bool deeper() {
    if (++depth_ > kDepth) throw RowError{"is nested deeper than " + std::to_string(kDepth) + " levels"};
    return true;
  }
  bool whole(std::int64_t n, std::string written) {
    if (list_ != nullptr && depth_ == 2) {
      list_->push_back(n);
      return true;
    }
    return leaf(of_text(JsonValue::Kind::number, std::move(written)), "a number");
  }
  /// A value that is of the wrong kind where a format reads it, and of no interest elsewhere.
  bool scalar(const char* kind) {
    if (depth_ == 0) throw RowError{std::string("is ") + kind + "; each line must be one object in braces"};
    if (list_ != nullptr) throw RowError{key_ + " holds " + kind + "; it must hold whole numbers alone"};
    if (depth_ == 1 && key_ == "text") throw RowError{std::string("text is ") + kind + "; it must be a text"};
    if (depth_ == 1 && list_of(key_) != nullptr)
      throw RowError{key_ + " is " + kind + "; it must be a list of whole numbers"};
    return true;
  }

  int depth_ = 0;
  std::string key_;
  std::set<std::string> seen_;
  std::vector<std::int64_t>* list_ = nullptr;  // the list whose numbers are kept
  std::optional<Tree> tree_;                   // the value that is kept
};

/// One value alone.
class ValueReader : public nlohmann::json_sax<json> {
 public:
  explicit ValueReader(std::string what) : what_(std::move(what)), tree_(value) {}
  JsonValue value;

  bool null() override { return add(JsonValue()); }
  bool boolean(bool b) override { return add(of_truth(b)); }
  bool number_integer(number_integer_t n) override {
    return add(of_text(JsonValue::Kind::number, std::to_string(n)));
  }
  bool number_unsigned(number_unsigned_t n) override {
    return add(of_text(JsonValue::Kind::number, std::to_string(n)));
  }
  bool number_float(number_float_t n, const string_t& written) override {
    return add(of_fraction(n, written));
  }
  bool binary(binary_t&) override { return false; }
  bool string(string_t& text) override { return add(of_text(JsonValue::Kind::text, std::move(text))); }
  bool start_object(std::size_t) override { return open(JsonValue::Kind::object); }
  bool start_array(std::size_t) override { return open(JsonValue::Kind::list); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    tree_.key(std::move(name));
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    not_json(0, e.what(), what_ + " ");
  }

 private:
  bool add(JsonValue v) {
    tree_.add(std::move(v));
    return true;
  }
  bool open(JsonValue::Kind kind) {
    if (++depth_ > kDepth)
      throw RowError{what_ + " is nested deeper than " + std::to_string(kDepth) + " levels"};
    return add(of_kind(kind));
  }
  bool close() {
    --depth_;
    tree_.close();
    return true;
  }

  std::string what_;
  Tree tree_;
  int depth_ = 0;
};

/// What an optional list of a row says of a token: 0 or 1.
bool mask_at(const std::vector<std::int64_t>& mask, std::size_t i, const char* name) {
  if (mask[i] != 0 && mask[i] != 1)
    throw RowError{std::string(name) + " holds " + std::to_string(mask[i]) + " at place " +
                   std::to_string(i) + "; it must hold 0 and 1 alone"};
  return mask[i] == 1;
}

void check_length(const std::vector<std::int64_t>& list, const char* name, std::size_t ids) {
  if (list.size() != ids)
    throw RowError{"has " + std::to_string(list.size()) + " " + name + " for " + std::to_string(ids) +
                   " input_ids"};
}

}  // namespace

const JsonValue* RowFields::value(std::string_view key) const {
  const auto at = values.find(key);
  return at == values.end() ? nullptr : &at->second;
}

bool RowFields::has(std::string_view key) const {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

RowFields parse_row(std::string_view line) {
  RowReader reader;
  json::sax_parse(line.begin(), line.end(), &reader, json::input_format_t::json, true);
  return std::move(reader.fields);
}

JsonValue parse_value(std::string_view text, const std::string& what) {
  ValueReader reader(what);
  json::sax_parse(text.begin(), text.end(), &reader, json::input_format_t::json, true);
  return std::move(reader.value);
}

RowTokens tokens_of_row(const RowFields& row, std::int64_t vocabulary, const std::string& loss_on) {
  if (!row.input_ids) throw RowError{"has no input_ids"};
  const std::vector<std::int64_t>& ids = *row.input_ids;
  if (ids.empty()) throw RowError{"has an empty input_ids"};
  if (row.labels) check_length(*row.labels, "labels", ids.size());
  struct Mask {
    const char* name;
    const std::vector<std::int64_t>* list;
  };
  std::vector<Mask> masks;
  const auto add = [&](const char* name, const std::optional<std::vector<std::int64_t>>& list,
                       const char* on) {
    if (loss_on == on && !list)
      throw RowError{std::string("has no ") + name + ", which data.loss_on=" + on + " needs"};
    if (!list) return;
    check_length(*list, name, ids.size());
    if (loss_on == on || (loss_on == "auto" && !row.labels)) masks.push_back({name, &*list});
  };
  add("completion_mask", row.completion_mask, "completion");
  add("assistant_masks", row.assistant_masks, "assistant");
  RowTokens out;
  out.ids.reserve(ids.size());
  out.mask.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary)
      throw RowError{"has the id " + std::to_string(ids[i]) + " at place " + std::to_string(i) +
                     " of input_ids; the model's vocabulary has " + std::to_string(vocabulary) + " ids"};
    const std::int64_t label = row.labels ? (*row.labels)[i] : ids[i];
    if (label != ids[i] && label != -100)
      throw RowError{"has the label " + std::to_string(label) + " at place " + std::to_string(i) +
                     ", which is neither its input id " + std::to_string(ids[i]) +
                     " (labels are not shifted) nor -100"};
    bool target = loss_on != "auto" || label != -100;
    for (const Mask& m : masks) target = mask_at(*m.list, i, m.name) && target;
    out.ids.push_back(static_cast<std::int32_t>(ids[i]));
    out.mask.push_back(target ? 1 : 0);
  }
  return out;
}

}  // namespace annulus
