// One row of a JSONL file.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#include "data/json_value.h"

namespace annulus {

/// What is wrong with a row, and at which byte of it.
struct RowError {
  std::string why;
  std::int64_t byte = 0;
};

/// The keys of a row that any format reads; `keys` has all of its outermost ones, in order.
struct RowFields {
  std::optional<std::string> text;
  std::optional<std::vector<std::int64_t>> input_ids, labels, completion_mask, assistant_masks;
  std::map<std::string, JsonValue, std::less<>>
      values;  // messages, prompt, tools and the like, but for nulls
  std::vector<std::string> keys;

  const JsonValue* value(std::string_view key) const;

  bool has(std::string_view key) const;
};

/// Strict JSON: one object a line, valid UTF-8, no lone surrogates, no repeated keys. Throws RowError.
RowFields parse_row(std::string_view line);

/// The same of any JSON value in a text. `what`: names it in errors.
JsonValue parse_value(std::string_view text, const std::string& what);

/// ids and mask of a row with input_ids. A label is its own token's id, or -100 where that token is no target
/// (unshifted, as in transformers). `loss_on`: auto: the labels, or else the tokens that no mask
/// (completion_mask, assistant_masks) leaves out; completion, assistant: that mask, which must be there; all.
/// Throws RowError.
struct RowTokens {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> mask;

  void clear() {
    ids.clear();
    mask.clear();
  }
};
RowTokens tokens_of_row(const RowFields&, std::int64_t vocabulary, const std::string& loss_on);

}  // namespace annulus
