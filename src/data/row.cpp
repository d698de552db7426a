#include "data/row.h"
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include "core/one_line.h"

namespace annulus {
namespace {

using nlohmann::json;
constexpr int kDepth = 64;

/// Keeps what the formats read and passes over the rest, whatever is in it.
class RowReader : public nlohmann::json_sax<json> {
 public:
  RowFields fields;

  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("true or false"); }
  bool number_integer(number_integer_t n) override { return whole(n); }
  bool number_unsigned(number_unsigned_t n) override {
    return whole(static_cast<std::int64_t>(std::min<std::uint64_t>(n, INT64_MAX)));
  }
  bool number_float(number_float_t, const string_t&) override {
    return scalar("a number with a fraction or beyond 64 bits");
  }
  bool binary(binary_t&) override { return scalar("binary"); }

  bool string(string_t& value) override {
    if (depth_ == 1 && key_ == "text") {
      fields.text = std::move(value);
      return true;
    }
    return scalar("a text");
  }
  bool start_object(std::size_t) override {
    if (depth_ > 0) scalar("an object");
    return deeper();
  }
  bool end_object() override { return --depth_, true; }
  bool start_array(std::size_t) override {
    if (depth_ == 0) throw RowError{"is a list; each line must be one object in braces"};
    if (list_ != nullptr) return scalar("a list");
    if (depth_ == 1 && key_ == "input_ids")
      list_ = &fields.input_ids.emplace();
    else if (depth_ == 1 && key_ == "labels")
      list_ = &fields.labels.emplace();
    else
      scalar("a list");
    return deeper();
  }
  bool end_array() override {
    if (--depth_ == 1) list_ = nullptr;
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    if (!seen_.insert(name).second) throw RowError{"has the key \"" + one_line(name) + "\" twice"};
    fields.keys.push_back(name);
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    const std::string what = e.what();
    const auto says = [&](const char* part) { return what.find(part) != std::string::npos; };
    std::string why = "is not valid JSON";
    if (says("UTF-8")) why = "is not valid UTF-8";
    if (says("surrogate")) why = "has half of a surrogate pair (\\ud800 to \\udfff)";
    if (says("; expected end of input"))
      why = "has something after its first value; each line must be one object";
    if (says("out_of_range")) why = "has a number that no 64-bit type can hold";
    throw RowError{why, static_cast<std::int64_t>(position > 0 ? position - 1 : 0)};
  }

 private:
  bool deeper() {
    if (++depth_ > kDepth) throw RowError{"is nested deeper than " + std::to_string(kDepth) + " levels"};
    return true;
  }
  bool whole(std::int64_t n) {
    if (list_ != nullptr && depth_ == 2) {
      list_->push_back(n);
      return true;
    }
    return scalar("a number");
  }
  /// A value that is of the wrong kind where a format reads it, and of no interest elsewhere.
  bool scalar(const char* kind) {
    if (depth_ == 0) throw RowError{std::string("is ") + kind + "; each line must be one object in braces"};
    if (list_ != nullptr) throw RowError{key_ + " holds " + kind + "; it must hold whole numbers alone"};
    if (depth_ == 1 && key_ == "text") throw RowError{std::string("text is ") + kind + "; it must be a text"};
    if (depth_ == 1 && (key_ == "input_ids" || key_ == "labels"))
      throw RowError{key_ + " is " + kind + "; it must be a list of whole numbers"};
    return true;
  }

  int depth_ = 0;
  std::string key_;
  std::set<std::string> seen_;
  std::vector<std::int64_t>* list_ = nullptr;  // the list whose numbers are kept
};

}  // namespace

bool RowFields::has(std::string_view key) const {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

RowFields parse_row(std::string_view line) {
  RowReader reader;
  json::sax_parse(line.begin(), line.end(), &reader, json::input_format_t::json, true);
  return std::move(reader.fields);
}

RowTokens tokens_of_row(const RowFields& row, std::int64_t vocabulary) {
  if (!row.input_ids) throw RowError{"has no input_ids"};
  const std::vector<std::int64_t>& ids = *row.input_ids;
  if (ids.empty()) throw RowError{"has an empty input_ids"};
  if (row.labels && row.labels->size() != ids.size())
    throw RowError{"has " + std::to_string(row.labels->size()) + " labels for " + std::to_string(ids.size()) +
                   " input_ids"};
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
    out.ids.push_back(static_cast<std::int32_t>(ids[i]));
    out.mask.push_back(label == -100 ? 0 : 1);
  }
  return out;
}

}  // namespace annulus
