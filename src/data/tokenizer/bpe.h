// Byte-level byte pair encoding: a word's bytes become tokens, and pairs of neighbours are merged, the pair
// of the lowest rank first and the leftmost of those, until no neighbours have a merge.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>
#include "data/tokenizer/word_cache.h"

namespace annulus {

/// left and right become result; its rank is its place in the list.
struct Merge {
  std::int32_t left = 0, right = 0, result = 0;
};

/// Of two merges of the same pair, the later counts.
class MergeTable {
 public:
  explicit MergeTable(const std::vector<Merge>&);
  struct Entry {
    std::uint64_t pair = 0;
    std::uint32_t rank = kNone;
    std::int32_t result = 0;
  };
  static constexpr std::uint32_t kNone = UINT32_MAX;
  /// An entry of rank kNone when the two have no merge.
  const Entry& find(std::int32_t left, std::int32_t right) const;

 private:
  std::size_t slot_of(std::uint64_t pair) const;
  std::vector<Entry> slots_;  // a power of two; linear probing
  int shift_ = 0;
};

/// Not for two threads at once: it keeps the words it has seen.
class Bpe {
 public:
  /// `bytes`: the token of each byte, -1 for those that no UTF-8 text has. `whole`: words (as bytes) that are
  /// a token without any merging, for files with ignore_merges; else empty.
  Bpe(const std::array<std::int32_t, 256>& bytes, const std::vector<Merge>&,
      std::unordered_map<std::string, std::int32_t> whole);
  /// Appends the word's tokens. Time: linear in the length, but for a logarithm.
  void encode(std::string_view word, std::vector<std::int32_t>& to);

 private:
  void merge_short(std::string_view word, std::vector<std::int32_t>& to);
  void merge_long(std::string_view word, std::vector<std::int32_t>& to) const;

  std::array<std::int32_t, 256> bytes_;
  MergeTable merges_;
  std::unordered_map<std::string, std::int32_t> whole_;
  WordCache cache_;
};

}  // namespace annulus
