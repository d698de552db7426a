// Tiles of tokens that travel to the ranks of their experts, cut so that what any rank sends, receives and
// expands fits buffers of one size, however uneven the routing is.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace annulus {

/// A group of ranks that share a layer's experts: rank r holds experts [r * X, (r + 1) * X), X = E / ranks.
struct ExpertShape {
  std::int64_t E = 1, K = 1;
  int ranks = 1, rank = 0;
  std::int64_t here() const { return E / ranks; }  // X
};

/// Sizes that depend on the shape alone, the same on all ranks and for every row.
struct ExpertBuffers {
  std::int64_t tokens = 0;    // of a tile, at most: a whole number of ranges
  std::int64_t range = 0;     // tokens of a range. Counts are kept for each; a tile is consecutive ranges
  std::int64_t sent = 0;      // rows that a rank sends in a tile, at most
  std::int64_t received = 0;  // rows that a rank receives
  std::int64_t expanded = 0;  // pairs of a received row and an expert of the rank
};
/// For `tokens` local tokens in tiles of about `tile`: rows of a tile that is routed evenly, times
/// `imbalance`. A range is so short that even from all ranks to the experts of one it fits.
ExpertBuffers expert_buffers(const ExpertShape&, std::int64_t tokens, std::int64_t tile, double imbalance);

inline std::int64_t ranges_of(const ExpertBuffers& b, std::int64_t tokens) {
  return (tokens + b.range - 1) / b.range;
}

/// One tile as a rank sees it.
struct ExpertTile {
  std::int64_t from = 0, tokens = 0;    // of this rank's own
  std::vector<std::int64_t> sends;      // rows to each rank
  std::vector<std::int64_t> receives;   // rows from each rank
  std::vector<std::int64_t> offsets;    // (X + 1) first expanded row of each expert here
  std::int64_t sent = 0, received = 0;  // sums of the two
  std::int64_t expanded() const { return offsets.back(); }
};

/// `counts`: from each rank, in turn, what RouteCount said of its ranges: (ranges, E) pairs, then (ranges,
/// ranks) rows. All ranks cut the same tiles from it.
std::vector<ExpertTile> cut_tiles(const ExpertShape&, const ExpertBuffers&, std::int64_t tokens,
                                  std::span<const std::int64_t> counts);
/// As if every expert were as likely: what a plan walks, where nothing is routed.
std::vector<ExpertTile> even_tiles(const ExpertShape&, const ExpertBuffers&, std::int64_t tokens);

}  // namespace annulus
