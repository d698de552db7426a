// Random packed rows for tests, and the visible-range rule written the plain way.
#pragma once
#include <algorithm>
#include <vector>
#include "core/rng.h"
#include "parallel/row_map.h"

namespace annulus::test {

/// Counter-based numbers: the same rows on every rank and every run.
class Dice {
 public:
  explicit Dice(std::uint64_t stream) : stream_(stream) {}
  /// Uniform in [low, high].
  std::int64_t in(std::int64_t low, std::int64_t high) {
    const std::uint32_t bits = draw(7, Draw::test, stream_, next_++)[0];
    return low + static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(high - low + 1));
  }

 private:
  std::uint64_t stream_, next_ = 0;
};

/// A row of at most `longest` tokens cut into up to `documents` documents, often with padding at its end.
inline RowShape random_row(Dice& dice, std::int64_t longest, std::int64_t documents) {
  RowShape row;
  row.sequence = dice.in(1, longest);
  row.used = dice.in(0, 3) == 0 ? dice.in(0, row.sequence) : row.sequence;
  if (row.used == 0) return row;
  row.starts.push_back(0);
  for (std::int64_t d = dice.in(1, documents); d > 1; --d) row.starts.push_back(dice.in(0, row.used - 1));
  std::sort(row.starts.begin(), row.starts.end());
  row.starts.erase(std::unique(row.starts.begin(), row.starts.end()), row.starts.end());
  return row;
}

/// first[p] of every position of the padded row, walked from left to right.
inline std::vector<std::int64_t> plain_first(const RowShape& row, std::int64_t length, std::int64_t window) {
  std::vector<std::int64_t> first(static_cast<std::size_t>(length));
  std::size_t next = 0;
  std::int64_t start = 0;
  for (std::int64_t p = 0; p < length; ++p) {
    if (p >= row.used)
      start = p;
    else if (next < row.starts.size() && row.starts[next] == p) {
      start = p;
      ++next;
    }
    first[static_cast<std::size_t>(p)] = window == 0 ? start : std::max(start, p - window + 1);
  }
  return first;
}

}  // namespace annulus::test
