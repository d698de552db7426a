#include "data/tokenizer/bpe.h"
#include <bit>
#include <queue>
#include "core/check.h"

namespace annulus {
namespace {

constexpr std::size_t kShort = 64;  // bytes: up to here looking at every pair each time is faster than a heap
constexpr MergeTable::Entry kNoMerge;

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(const std::vector<Merge>& merges)
    : slots_(std::bit_ceil(2 * merges.size() + 2)), shift_(64 - std::countr_zero(slots_.size())) {
  need(merges.size() < kNone, "more merges than ranks");
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& m = merges[rank];
    const std::uint64_t pair = pair_of(m.left, m.right);
    slots_[slot_of(pair)] = {pair, static_cast<std::uint32_t>(rank), m.result};
  }
}

std::size_t MergeTable::slot_of(std::uint64_t pair) const {
  std::size_t s = (pair ^ (pair >> 31)) * 0x9E3779B97F4A7C15u >> shift_;
  while (slots_[s].rank != kNone && slots_[s].pair != pair) s = (s + 1) & (slots_.size() - 1);
  return s;
}

const MergeTable::Entry& MergeTable::find(std::int32_t left, std::int32_t right) const {
  return slots_[slot_of(pair_of(left, right))];
}

Bpe::Bpe(const std::array<std::int32_t, 256>& bytes, const std::vector<Merge>& merges,
         std::unordered_map<std::string, std::int32_t> whole)
    : bytes_(bytes), merges_(merges), whole_(std::move(whole)) {}

void Bpe::encode(std::string_view word, std::vector<std::int32_t>& to) {
  if (word.size() == 1) {
    to.push_back(bytes_[static_cast<std::uint8_t>(word[0])]);
    return;
  }
  const bool kept = word.size() <= WordCache::kLongest;
  const std::uint64_t hash = kept ? WordCache::hash(word) : 0;
  if (kept && cache_.find(word, hash, to)) return;
  const std::size_t before = to.size();
  const auto at = whole_.empty() ? whole_.end() : whole_.find(std::string(word));
  if (at != whole_.end())
    to.push_back(at->second);
  else if (word.size() <= kShort)
    merge_short(word, to);
  else
    merge_long(word, to);
  if (kept) cache_.insert(word, hash, std::span(to).subspan(before));
}

void Bpe::merge_short(std::string_view word, std::vector<std::int32_t>& to) {
  std::int32_t ids[kShort];
  MergeTable::Entry next[kShort];  // the merge of each with its right neighbour
  std::size_t n = word.size();
  for (std::size_t i = 0; i < n; ++i) ids[i] = bytes_[static_cast<std::uint8_t>(word[i])];
  const auto look = [&](std::size_t i) { next[i] = i + 1 < n ? merges_.find(ids[i], ids[i + 1]) : kNoMerge; };
  for (std::size_t i = 0; i < n; ++i) look(i);
  while (true) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < n; ++i)
      if (next[i].rank < next[best].rank) best = i;
    if (next[best].rank == MergeTable::kNone) break;
    ids[best] = next[best].result;
    --n;
    for (std::size_t i = best + 1; i < n; ++i) {
      ids[i] = ids[i + 1];
      next[i] = next[i + 1];
    }
    look(best);
    if (best > 0) look(best - 1);
  }
  to.insert(to.end(), ids, ids + n);
}

void Bpe::merge_long(std::string_view word, std::vector<std::int32_t>& to) const {
  struct Symbol {
    std::int32_t id;  // -1: merged into one before it
    std::int64_t before, after;
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t result;
    std::int64_t at;
    bool operator<(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
  };
  const auto n = static_cast<std::int64_t>(word.size());
  std::vector<Symbol> symbols(word.size());
  const auto symbol = [&](std::int64_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
  for (std::int64_t i = 0; i < n; ++i)
    symbol(i) = {bytes_[static_cast<std::uint8_t>(word[static_cast<std::size_t>(i)])], i - 1, i + 1};
  const auto merge_at = [&](std::int64_t i) -> const MergeTable::Entry& {
    return symbol(i).id < 0 || symbol(i).after == n ? kNoMerge
                                                    : merges_.find(symbol(i).id, symbol(symbol(i).after).id);
  };
  std::vector<Candidate> first;
  first.reserve(word.size());
  for (std::int64_t i = 0; i < n; ++i)
    if (const auto& m = merge_at(i); m.rank != MergeTable::kNone) first.push_back({m.rank, m.result, i});
  std::priority_queue<Candidate> open(std::less<Candidate>(), std::move(first));
  const auto offer = [&](std::int64_t i) {
    if (const auto& m = merge_at(i); m.rank != MergeTable::kNone) open.push({m.rank, m.result, i});
  };
  while (!open.empty()) {
    const Candidate best = open.top();
    open.pop();
    if (merge_at(best.at).rank != best.rank) continue;  // one of the two is no longer what it was
    Symbol& left = symbol(best.at);
    Symbol& right = symbol(left.after);
    left.id = best.result;
    left.after = right.after;
    right.id = -1;
    if (left.after < n) symbol(left.after).before = best.at;
    offer(best.at);
    if (left.before >= 0) offer(left.before);
  }
  for (std::int64_t i = 0; i < n; i = symbol(i).after) to.push_back(symbol(i).id);
}

}  // namespace annulus
