// Words that were met, with their tokens: most words of a text are few.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace annulus {

/// Bounded: it forgets everything when it is full.
class WordCache {
 public:
  static constexpr std::size_t kLongest = 128;  // bytes of a word that is kept
  static std::uint64_t hash(std::string_view word);

  WordCache();
  /// False when the word is not there; else appends its tokens.
  bool find(std::string_view word, std::uint64_t hash, std::vector<std::int32_t>& to) const;
  /// The word must not be there and must not be longer than kLongest.
  void insert(std::string_view word, std::uint64_t hash, std::span<const std::int32_t> ids);

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t word_at = 0, ids_at = 0;
    std::uint16_t length = 0, count = 0;  // length 0: free
  };
  std::vector<Slot> slots_;
  std::string words_;
  std::vector<std::int32_t> ids_;
  std::size_t used_ = 0;
};

}  // namespace annulus
