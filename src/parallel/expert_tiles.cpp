#include "parallel/expert_tiles.h"
#include <algorithm>
#include <cmath>
#include "core/check.h"

namespace annulus {
namespace {

std::int64_t up(std::int64_t n, std::int64_t d) {
  return (n + d - 1) / d;
}

/// Share of tokens that choose at least one expert of a given rank, where all choices are as likely.
double share_of_tokens(const ExpertShape& s) {
  double none = 1;
  for (std::int64_t k = 0; k < s.K; ++k)
    none *= std::max(0.0, static_cast<double>(s.E - s.here() - k) / static_cast<double>(s.E - k));
  return 1 - none;
}

/// What everybody said of their ranges.
struct Counts {
  const ExpertShape& shape;
  std::int64_t ranges;
  std::span<const std::int64_t> all;

  std::span<const std::int64_t> of(int rank) const {
    const auto each = static_cast<std::size_t>(ranges * (shape.E + shape.ranks));
    return all.subspan(static_cast<std::size_t>(rank) * each, each);
  }
  std::int64_t pairs(int from, std::int64_t range, std::int64_t expert) const {
    return of(from)[static_cast<std::size_t>(range * shape.E + expert)];
  }
  std::int64_t rows(int from, std::int64_t range, int to) const {
    return of(from)[static_cast<std::size_t>(ranges * shape.E + range * shape.ranks + to)];
  }
};

/// What a tile makes of every rank's buffers.
struct Load {
  explicit Load(int ranks) : sent(static_cast<std::size_t>(ranks), 0), received(sent), expanded(sent) {}
  void add(const Counts& c, std::int64_t range) {
    const std::int64_t X = c.shape.here();
    for (int from = 0; from < c.shape.ranks; ++from)
      for (int to = 0; to < c.shape.ranks; ++to) {
        const std::int64_t rows = c.rows(from, range, to);
        sent[static_cast<std::size_t>(from)] += rows;
        received[static_cast<std::size_t>(to)] += rows;
        for (std::int64_t e = to * X; e < (to + 1) * X; ++e)
          expanded[static_cast<std::size_t>(to)] += c.pairs(from, range, e);
      }
  }
  bool fits(const ExpertBuffers& b) const {
    const auto most = [](const std::vector<std::int64_t>& v) {
      return *std::max_element(v.begin(), v.end());
    };
    return most(sent) <= b.sent && most(received) <= b.received && most(expanded) <= b.expanded;
  }
  std::vector<std::int64_t> sent, received, expanded;
};

/// The tile of ranges [first, last) as this rank sees it.
ExpertTile make_tile(const Counts& c, const ExpertBuffers& b, std::int64_t tokens, std::int64_t first,
                     std::int64_t last) {
  const ExpertShape& s = c.shape;
  ExpertTile t;
  t.from = first * b.range;
  t.tokens = std::min(last * b.range, tokens) - t.from;
  t.sends.assign(static_cast<std::size_t>(s.ranks), 0);
  t.receives = t.sends;
  t.offsets.assign(static_cast<std::size_t>(s.here() + 1), 0);
  for (std::int64_t range = first; range < last; ++range)
    for (int r = 0; r < s.ranks; ++r) {
      t.sends[static_cast<std::size_t>(r)] += c.rows(s.rank, range, r);
      t.receives[static_cast<std::size_t>(r)] += c.rows(r, range, s.rank);
      for (std::int64_t e = 0; e < s.here(); ++e)
        t.offsets[static_cast<std::size_t>(e + 1)] += c.pairs(r, range, s.rank * s.here() + e);
    }
  for (const std::int64_t n : t.sends) t.sent += n;
  for (const std::int64_t n : t.receives) t.received += n;
  for (std::size_t e = 1; e < t.offsets.size(); ++e) t.offsets[e] += t.offsets[e - 1];
  return t;
}

}  // namespace

ExpertBuffers expert_buffers(const ExpertShape& s, std::int64_t tokens, std::int64_t tile, double imbalance) {
  need(s.ranks >= 1 && s.E % s.ranks == 0 && s.K >= 1 && s.K <= s.E,
       "experts: their ranks do not divide them");
  need(tokens >= 1 && imbalance >= 1, "experts: no tokens");
  const std::int64_t R = s.ranks, each = std::min(s.K, s.here());  // pairs of one row on one rank, at most
  ExpertBuffers b;
  b.tokens = tile > 0 ? std::min(tile, tokens) : tokens;
  const double rows = share_of_tokens(s) * static_cast<double>(R * b.tokens) * imbalance;
  const double pairs = static_cast<double>(s.K * b.tokens) * imbalance;
  // At least one token from every rank, at most all that there can be.
  const auto within = [&](double n, std::int64_t least, std::int64_t most) {
    return std::clamp(static_cast<std::int64_t>(std::ceil(n)), std::min(least, most), most);
  };
  b.sent = within(rows, std::min(s.K, R), b.tokens * std::min(s.K, R));
  b.received = within(rows, R, R * b.tokens);
  b.expanded = within(pairs, R * each, R * b.tokens * each);
  const std::int64_t most = std::min({b.sent / std::min(s.K, R), b.received / R, b.expanded / (R * each)});
  b.range = up(b.tokens, up(b.tokens, most));
  b.tokens = up(b.tokens, b.range) * b.range;
  return b;
}

std::vector<ExpertTile> cut_tiles(const ExpertShape& s, const ExpertBuffers& b, std::int64_t tokens,
                                  std::span<const std::int64_t> counts) {
  const Counts c{s, ranges_of(b, tokens), counts};
  need(static_cast<std::int64_t>(counts.size()) == s.ranks * c.ranges * (s.E + s.ranks),
       "experts: counts of another number of ranges");
  std::vector<ExpertTile> tiles;
  for (std::int64_t first = 0; first < c.ranges;) {
    Load load(s.ranks);
    load.add(c, first);
    need(load.fits(b), "experts: one range does not fit the buffers");
    std::int64_t last = first + 1;
    for (; last < c.ranges && (last + 1 - first) * b.range <= b.tokens; ++last) {
      load.add(c, last);
      if (!load.fits(b)) break;
    }
    tiles.push_back(make_tile(c, b, tokens, first, last));
    first = last;
  }
  return tiles;
}

std::vector<ExpertTile> even_tiles(const ExpertShape& s, const ExpertBuffers& b, std::int64_t tokens) {
  std::vector<ExpertTile> tiles;
  for (std::int64_t from = 0; from < tokens; from += b.tokens) {
    ExpertTile& t = tiles.emplace_back();
    t.from = from;
    t.tokens = std::min(b.tokens, tokens - from);
    const auto rows = static_cast<std::int64_t>(share_of_tokens(s) * static_cast<double>(t.tokens));
    t.sends.assign(static_cast<std::size_t>(s.ranks), rows);
    t.receives = t.sends;
    t.sent = t.received = s.ranks * rows;
    for (std::int64_t e = 0; e <= s.here(); ++e) t.offsets.push_back(e * (s.ranks * s.K * t.tokens / s.E));
  }
  return tiles;
}

}  // namespace annulus
