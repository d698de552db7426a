// A step whose loss or gradient is not finite: which row and document it came from, in words.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
#include "comm/comm.h"
#include "data/dataset.h"
#include "train/engine.h"

namespace annulus {

/// This rank's targets whose loss is not finite, over the micro-steps of one step.
class BadTargets {
 public:
  /// Looks at the row (its number in the data set, -1: none) that the engine has just run.
  void look(std::int64_t row, const LocalRow&, std::span<const float> nll, const Grid&);

  /// "17 of 8191 targets have a loss that is not finite; in row 41 they begin at token 17 of document 102 of
  /// FILE (seen by rank 2 on host h)". Everything counts from 0, in the order of the token file. What is not
  /// finite reaches the rest of an attention tile, so that they may begin a little before what caused it.
  /// Collective, and the same on every rank.
  std::string describe(Comm& world, const Dataset&, const std::string& host, std::int64_t all_targets) const;

 private:
  static constexpr std::int64_t kNone = std::int64_t{1} << 62;
  std::int64_t count_ = 0;
  std::int64_t row_ = kNone, first_ = 0, last_ = 0;  // the earliest row that has any, and where in it
};

/// The same for a gradient that is not finite behind a loss that is: "row 41 (documents 100 to 103 of FILE)".
std::string rows_in_words(const Dataset&, const std::vector<std::int64_t>& rows);

}  // namespace annulus
