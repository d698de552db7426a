// Tiles of tokens on their way to experts: every token once, nothing beyond the buffers, the same on all
// ranks.
#include "parallel/expert_tiles.h"
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <set>
#include <vector>
#include "core/rng.h"

using namespace annulus;

namespace {

/// Experts of a token: K different ones.
using Choice = std::vector<std::int64_t>;
/// What tokens of one rank choose.
using Choose = Choice (*)(const ExpertShape&, int rank, std::int64_t token);

Choice random_choice(const ExpertShape& s, int rank, std::int64_t token) {
  std::set<std::int64_t> experts;
  for (std::uint64_t i = 0; static_cast<std::int64_t>(experts.size()) < s.K; ++i)
    experts.insert(draw(1, Draw::test, static_cast<std::uint64_t>(rank) << 32 | i,
                        static_cast<std::uint64_t>(token))[0] %
                   static_cast<std::uint32_t>(s.E));
  return {experts.begin(), experts.end()};
}

Choice first_ones(const ExpertShape& s, int, std::int64_t) {
  Choice c(static_cast<std::size_t>(s.K));
  std::iota(c.begin(), c.end(), 0);
  return c;
}

Choice last_ones(const ExpertShape& s, int, std::int64_t) {
  Choice c(static_cast<std::size_t>(s.K));
  std::iota(c.begin(), c.end(), s.E - s.K);
  return c;
}

/// Padding: no token of some ranks is routed.
Choice from_one_rank(const ExpertShape& s, int rank, std::int64_t token) {
  return rank == 0 ? random_choice(s, rank, token) : Choice{};
}

struct Counted {
  std::vector<std::int64_t> all;     // as cut_tiles takes it
  std::vector<std::int64_t> routed;  // rows to each rank, of all ranks
};

Counted count(ExpertShape s, const ExpertBuffers& b, std::int64_t tokens, Choose choose) {
  const std::int64_t ranges = ranges_of(b, tokens);
  Counted c{{}, std::vector<std::int64_t>(static_cast<std::size_t>(s.ranks), 0)};
  for (int from = 0; from < s.ranks; ++from) {
    std::vector<std::int64_t> pairs(static_cast<std::size_t>(ranges * s.E), 0);
    std::vector<std::int64_t> rows(static_cast<std::size_t>(ranges * s.ranks), 0);
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::set<std::int64_t> ranks;
      for (const std::int64_t e : choose(s, from, t)) {
        ++pairs[static_cast<std::size_t>(t / b.range * s.E + e)];
        ranks.insert(e / s.here());
      }
      for (const std::int64_t r : ranks) {
        ++rows[static_cast<std::size_t>(t / b.range * s.ranks + r)];
        ++c.routed[static_cast<std::size_t>(r)];
      }
    }
    c.all.insert(c.all.end(), pairs.begin(), pairs.end());
    c.all.insert(c.all.end(), rows.begin(), rows.end());
  }
  return c;
}

void check_tiles(ExpertShape s, std::int64_t tokens, std::int64_t tile, double imbalance, Choose choose) {
  const ExpertBuffers b = expert_buffers(s, tokens, tile, imbalance);
  BOOST_TEST_INFO("E " << s.E << " K " << s.K << " ranks " << s.ranks << " tokens " << tokens << " tile "
                       << tile);
  BOOST_TEST(b.range >= 1);
  BOOST_TEST(b.tokens % b.range == 0);
  const Counted counted = count(s, b, tokens, choose);
  std::vector<std::vector<ExpertTile>> of;  // by rank
  for (s.rank = 0; s.rank < s.ranks; ++s.rank) of.push_back(cut_tiles(s, b, tokens, counted.all));
  for (int r = 0; r < s.ranks; ++r) {
    const std::vector<ExpertTile>& mine = of[static_cast<std::size_t>(r)];
    BOOST_REQUIRE(mine.size() == of[0].size());
    std::int64_t next = 0, received = 0;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const ExpertTile& t = mine[i];
      BOOST_TEST(t.from == next);
      next += t.tokens;
      received += t.received;
      BOOST_TEST(t.tokens <= b.tokens);
      BOOST_TEST(t.sent <= b.sent);
      BOOST_TEST(t.received <= b.received);
      BOOST_TEST(t.expanded() <= b.expanded);
      BOOST_TEST(t.expanded() >= t.received);
      for (int other = 0; other < s.ranks; ++other)
        BOOST_TEST(t.sends[static_cast<std::size_t>(other)] ==
                   of[static_cast<std::size_t>(other)][i].receives[static_cast<std::size_t>(r)]);
    }
    BOOST_TEST(next == tokens);
    BOOST_TEST(received == counted.routed[static_cast<std::size_t>(r)]);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(parallel)

BOOST_AUTO_TEST_CASE(tiles_of_experts_hold_every_token_within_the_buffers) {
  for (const Choose choose : {random_choice, first_ones, last_ones, from_one_rank})
    for (const std::int64_t tokens : {1, 2, 37, 101})
      for (const std::int64_t tile : {0, 1, 8, 50})
        for (const double imbalance : {1.0, 1.25, 3.0}) {
          check_tiles({.E = 8, .K = 3, .ranks = 1}, tokens, tile, imbalance, choose);
          check_tiles({.E = 8, .K = 3, .ranks = 2}, tokens, tile, imbalance, choose);
          check_tiles({.E = 8, .K = 3, .ranks = 8}, tokens, tile, imbalance, choose);
          check_tiles({.E = 7, .K = 7, .ranks = 7}, tokens, tile, imbalance, choose);
          check_tiles({.E = 15, .K = 1, .ranks = 5}, tokens, tile, imbalance, choose);
        }
}

BOOST_AUTO_TEST_CASE(even_routing_goes_in_whole_tiles_and_uneven_in_shorter_ones) {
  const ExpertShape s{.E = 16, .K = 2, .ranks = 4, .rank = 1};
  const ExpertBuffers b = expert_buffers(s, 4000, 500, 1.25);
  const auto tiles = [&](Choose choose) { return cut_tiles(s, b, 4000, count(s, b, 4000, choose).all); };
  const std::size_t whole = static_cast<std::size_t>((4000 + b.tokens - 1) / b.tokens);
  BOOST_TEST(tiles(random_choice).size() == whole);
  BOOST_TEST(even_tiles(s, b, 4000).size() == whole);
  BOOST_TEST(tiles(first_ones).size() > whole);
  BOOST_TEST(b.expanded == 1250);
  BOOST_TEST(b.received == 1126);  // 1.25 * 2000 * 0.45: two experts of one rank are one row
}

BOOST_AUTO_TEST_CASE(one_rank_sends_each_token_once_and_never_needs_more) {
  const ExpertBuffers b = expert_buffers({.E = 128, .K = 8, .ranks = 1}, 10000, 4096, 1.25);
  BOOST_TEST(b.sent == 4096);
  BOOST_TEST(b.received == 4096);
  BOOST_TEST(b.expanded == 8 * 4096);
  BOOST_TEST(b.range == 4096);
}

BOOST_AUTO_TEST_SUITE_END()
