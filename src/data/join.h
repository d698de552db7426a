#pragma once
#include <cstdint>
#include <vector>
#include "comm/comm.h"

namespace annulus {

/// Tokens [from, from + count) of a rank's.
struct TokenRange {
  std::int64_t from = 0, count = 0;
};

/// Which of a rank's tokens go to the file, and where among those its documents begin.
struct TokenLayout {
  std::vector<TokenRange> kept;      // ascending; ranges that touch are one
  std::vector<std::int64_t> starts;  // of documents that begin here, counted in kept tokens
  std::int64_t tokens = 0;           // kept
  std::int64_t cut = 0;              // tokens beyond `most` of documents that count

  void keep(std::int64_t from, std::int64_t count);
};

/// Collective. Consecutive texts, across ranks, become documents of at least `tokens` tokens (the last may be
/// shorter), of which the first `take` (0: all) count and are cut to `most` tokens (0: not). Nothing moves: a
/// rank keeps its texts' tokens, and a document may go on in the next rank's. `lengths`: of this rank's
/// texts; `continues`: the first of them began on an earlier rank.
TokenLayout join_texts(Comm& world, const std::vector<std::int64_t>& lengths, bool continues,
                       std::int64_t tokens, std::int64_t most, std::int64_t take);

}  // namespace annulus
