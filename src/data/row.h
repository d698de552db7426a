// One row of a JSONL file.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace annulus {

/// What is wrong with a row, and at which byte of it.
struct RowError {
  std::string why;
  std::int64_t byte = 0;
};

/// The keys of a row that any format reads; `keys` has all of its outermost ones, in order.
struct RowFields {
  std::optional<std::string> text;
  std::optional<std::vector<std::int64_t>> input_ids, labels;
  std::vector<std::string> keys;

  bool has(std::string_view key) const;
};

/// Strict JSON: one object a line, valid UTF-8, no lone surrogates, no repeated keys. Throws RowError.
RowFields parse_row(std::string_view line);

/// ids and mask of a row with input_ids and perhaps labels; a label is its own token's id, or -100 where that
/// token is no target (unshifted, as in transformers). Throws RowError.
struct RowTokens {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> mask;

  void clear() {
    ids.clear();
    mask.clear();
  }
};
RowTokens tokens_of_row(const RowFields&, std::int64_t vocabulary);

}  // namespace annulus
