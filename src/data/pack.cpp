// Packing of documents into rows, and the order of rows.
#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include "core/check.h"
#include "core/rng.h"
#include "data/dataset.h"

namespace annulus {
namespace {

/// Best fit decreasing: pieces by falling length (equal ones in their order), each into the row with the
/// least space that holds it; of such rows into the one that came to that space first.
std::vector<PackedRow> best_fit(std::vector<Span> pieces, std::int64_t sequence) {
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Span& a, const Span& b) { return a.count > b.count; });
  std::vector<PackedRow> rows;
  std::map<std::int64_t, std::deque<std::size_t>> by_space;
  for (const Span& piece : pieces) {
    std::int64_t space = sequence;
    std::size_t row = rows.size();
    const auto best = by_space.lower_bound(piece.count);
    if (best == by_space.end()) {
      rows.emplace_back();
    } else {
      space = best->first;
      row = best->second.front();
      best->second.pop_front();
      if (best->second.empty()) by_space.erase(best);
    }
    rows[row].push_back(piece);
    if (space > piece.count) by_space[space - piece.count].push_back(row);
  }
  return rows;
}

}  // namespace

PackingResult pack_rows(const std::vector<std::int64_t>& offsets, std::int64_t sequence,
                        const std::string& strategy) {
  need(sequence > 0, "a row holds at least one token");
  PackingResult out;
  if (offsets.size() < 2) return out;
  if (strategy == "wrapped") {
    for (std::int64_t at = offsets.front(); at < offsets.back(); at += sequence)
      out.rows.push_back({Span{at, std::min(sequence, offsets.back() - at)}});
    return out;
  }
  std::vector<Span> pieces;
  for (std::size_t d = 0; d + 1 < offsets.size(); ++d) {
    const std::int64_t from = offsets[d], length = offsets[d + 1] - from;
    if (length == 0) continue;
    pieces.push_back({from, std::min(length, sequence)});
    if (strategy == "bfd_split") {
      for (std::int64_t at = sequence; at < length; at += sequence)
        pieces.push_back({from + at, std::min(length - at, sequence)});
    } else {
      out.dropped_tokens += length - pieces.back().count;
    }
  }
  if (strategy == "none") {
    for (const Span& piece : pieces) out.rows.push_back({piece});
    return out;
  }
  need(strategy == "bfd" || strategy == "bfd_split", "unknown packing strategy");
  out.rows = best_fit(std::move(pieces), sequence);
  return out;
}

std::vector<std::int64_t> row_order(std::int64_t rows, std::int64_t seed, std::int64_t epoch, bool shuffle) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(rows));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (!shuffle) return order;
  // Fisher and Yates. A 64-bit number is taken modulo n only when it lies below the largest multiple of n, so
  // that every permutation is equally likely; a number that is not is drawn again.
  for (std::uint64_t n = static_cast<std::uint64_t>(rows); n > 1; --n) {
    const std::uint64_t beyond = (0 - n) % n;  // 2^64 mod n
    for (std::uint64_t attempt = 0;; ++attempt) {
      const auto w = draw(static_cast<std::uint64_t>(seed), Draw::shuffle, static_cast<std::uint64_t>(epoch),
                          n | attempt << 48);
      const std::uint64_t x = std::uint64_t{w[0]} << 32 | w[1];
      if (x < beyond) continue;
      std::swap(order[n - 1], order[x % n]);
      break;
    }
  }
  return order;
}

}  // namespace annulus
