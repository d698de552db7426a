#include "data/tokenizer/word_cache.h"
#include <algorithm>
#include <cstring>

namespace annulus {
namespace {

constexpr std::size_t kSlots = std::size_t{1} << 19, kWords = kSlots / 2;  // 12 MiB of slots
constexpr std::size_t kLetters = std::size_t{16} << 20, kIds = std::size_t{8} << 20;

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  a = (a ^ b) * 0x9E3779B97F4A7C15u;
  return a ^ (a >> 29);
}

}  // namespace

std::uint64_t WordCache::hash(std::string_view word) {
  std::uint64_t h = word.size() * 0xBF58476D1CE4E5B9u;
  std::size_t at = 0;
  for (; at + 8 <= word.size(); at += 8) {
    std::uint64_t eight;
    std::memcpy(&eight, word.data() + at, 8);
    h = mixed(h, eight);
  }
  std::uint64_t rest = 0;
  for (int shift = 0; at < word.size(); ++at, shift += 8)
    rest |= std::uint64_t{static_cast<std::uint8_t>(word[at])} << shift;
  h = mixed(h, rest);
  return mixed(h, h >> 32);
}

WordCache::WordCache() : slots_(kSlots) {}

bool WordCache::find(std::string_view word, std::uint64_t hash, std::vector<std::int32_t>& to) const {
  for (std::size_t s = hash % kSlots; slots_[s].length != 0; s = (s + 1) % kSlots) {
    const Slot& slot = slots_[s];
    if (slot.hash != hash || std::string_view(words_).substr(slot.word_at, slot.length) != word) continue;
    const std::int32_t* ids = ids_.data() + slot.ids_at;
    if (slot.count == 1)
      to.push_back(*ids);
    else
      to.insert(to.end(), ids, ids + slot.count);
    return true;
  }
  return false;
}

void WordCache::insert(std::string_view word, std::uint64_t hash, std::span<const std::int32_t> ids) {
  if (used_ == kWords || words_.size() + word.size() > kLetters || ids_.size() + ids.size() > kIds) {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    words_.clear();
    ids_.clear();
    used_ = 0;
  }
  std::size_t s = hash % kSlots;
  while (slots_[s].length != 0) s = (s + 1) % kSlots;
  slots_[s] = {hash, static_cast<std::uint32_t>(words_.size()), static_cast<std::uint32_t>(ids_.size()),
               static_cast<std::uint16_t>(word.size()), static_cast<std::uint16_t>(ids.size())};
  words_.append(word);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ++used_;
}

}  // namespace annulus
