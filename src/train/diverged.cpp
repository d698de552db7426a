#include "train/diverged.h"
#include <algorithm>
#include <cmath>

namespace annulus {

void BadTargets::look(std::int64_t row, const LocalRow& local, std::span<const float> nll, const Grid& grid) {
  if (row < 0) return;
  for (const Run& run : local.map.local_runs(grid.ring_index, grid.ulysses_index))
    for (std::int64_t i = 0; i < run.count; ++i) {
      const auto t = static_cast<std::size_t>(run.at + i);
      if (local.targets[t] < 0 || std::isfinite(nll[t])) continue;
      const std::int64_t position = run.position + i;
      ++count_;
      if (row > row_) continue;  // an earlier row of the step is told about
      if (row < row_) first_ = last_ = position;
      row_ = row;
      first_ = std::min(first_, position);
      last_ = std::max(last_, position);
    }
}

std::string BadTargets::describe(Comm& world, const Dataset& data, const std::string& host,
                                 std::int64_t all_targets) const {
  const std::int64_t count = world.sum(count_);
  const std::int64_t row = -world.max(-row_);
  if (count == 0) return "every target's loss is finite and their sum is not";
  const bool mine = row_ == row;
  const std::int64_t first = -world.max(mine ? -first_ : -kNone), last = world.max(mine ? last_ : -1);
  const std::int64_t finder = world.max(mine && first_ == first ? world.rank() : -1);
  const std::string on = world.all_gather(host).at(static_cast<std::size_t>(finder));
  const Dataset::Where begin = data.where(row, first), end = data.where(row, last);
  std::string text = count == all_targets ? "all " : std::to_string(count) + " of ";
  text += std::to_string(all_targets) + " targets have a loss that is not finite; in row " +
          std::to_string(row) + " they begin at token " + std::to_string(begin.token) + " of document " +
          std::to_string(begin.document);
  if (end.document != begin.document) text += " and end in document " + std::to_string(end.document);
  return text + " of " + data.path() + " (seen by rank " + std::to_string(finder) + " on host " + on + ")";
}

std::string rows_in_words(const Dataset& data, const std::vector<std::int64_t>& rows) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, rows.size()); ++i) {
    const std::int64_t used = data.row_tokens(rows[i]);
    std::int64_t low = data.where(rows[i], 0).document, high = low;
    for (const std::int64_t start : data.starts(rows[i])) {
      const std::int64_t document = data.where(rows[i], start).document;
      low = std::min(low, document);
      high = std::max(high, document);
    }
    high = std::max(high, data.where(rows[i], used - 1).document);
    text += i > 0 ? ", row " : "row ";
    text += std::to_string(rows[i]) + " (" +
            (low == high ? "document " + std::to_string(low)
                         : "documents between " + std::to_string(low) + " and " + std::to_string(high)) +
            ")";
  }
  if (rows.size() > kMost) text += " and " + std::to_string(rows.size() - kMost) + " more";
  return text + " of " + data.path();
}

}  // namespace annulus
