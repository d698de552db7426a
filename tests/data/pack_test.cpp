#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <random>
#include <set>
#include "data/dataset.h"

using namespace annulus;

namespace {

std::vector<std::int64_t> offsets_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> out{0};
  for (const std::int64_t n : lengths) out.push_back(out.back() + n);
  return out;
}

/// Rows as lists of documents of tokens, token i of the file being i + 1.
using Rows = std::vector<std::vector<std::vector<int>>>;
Rows packed(const std::vector<std::int64_t>& lengths, std::int64_t sequence, const std::string& strategy) {
  Rows out;
  for (const PackedRow& row : pack_rows(offsets_of(lengths), sequence, strategy).rows) {
    out.emplace_back();
    for (const Span& s : row) {
      out.back().emplace_back();
      for (std::int64_t i = 0; i < s.count; ++i)
        out.back().back().push_back(static_cast<int>(s.from + i + 1));
    }
  }
  return out;
}

/// Best fit decreasing by looking at every row: slow, and obviously what the name says. Of rows with equally
/// little space it takes the one that came to it first.
std::vector<PackedRow> plain_best_fit(std::vector<Span> pieces, std::int64_t sequence) {
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Span& a, const Span& b) { return a.count > b.count; });
  std::vector<PackedRow> rows;
  std::vector<std::pair<std::int64_t, int>> space;  // and when it came to be
  int clock = 0;
  for (const Span& p : pieces) {
    std::size_t best = rows.size();
    for (std::size_t r = 0; r < rows.size(); ++r)
      if (space[r].first >= p.count && (best == rows.size() || space[r] < space[best])) best = r;
    if (best == rows.size()) {
      rows.emplace_back();
      space.emplace_back(sequence, 0);
    }
    rows[best].push_back(p);
    space[best] = {space[best].first - p.count, ++clock};
  }
  return rows;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data)

BOOST_AUTO_TEST_CASE(packing_of_the_small_example) {
  const std::vector<std::int64_t> lengths{5, 2, 3, 1};
  BOOST_TEST((packed(lengths, 4, "bfd") == Rows{{{1, 2, 3, 4}}, {{8, 9, 10}, {11}}, {{6, 7}}}));
  BOOST_TEST(pack_rows(offsets_of(lengths), 4, "bfd").dropped_tokens == 1);
  BOOST_TEST((packed(lengths, 4, "bfd_split") == Rows{{{1, 2, 3, 4}}, {{8, 9, 10}, {5}}, {{6, 7}, {11}}}));
  BOOST_TEST(pack_rows(offsets_of(lengths), 4, "bfd_split").dropped_tokens == 0);
  BOOST_TEST((packed(lengths, 4, "wrapped") == Rows{{{1, 2, 3, 4}}, {{5, 6, 7, 8}}, {{9, 10, 11}}}));
  BOOST_TEST((packed(lengths, 4, "none") == Rows{{{1, 2, 3, 4}}, {{6, 7}}, {{8, 9, 10}}, {{11}}}));
  BOOST_TEST(pack_rows(offsets_of(lengths), 4, "none").dropped_tokens == 1);
}

BOOST_AUTO_TEST_CASE(packing_edges) {
  BOOST_TEST(pack_rows({0}, 4, "bfd").rows.empty());
  BOOST_TEST(pack_rows({}, 4, "wrapped").rows.empty());
  BOOST_TEST((packed({4}, 4, "bfd_split") == Rows{{{1, 2, 3, 4}}}));
  BOOST_TEST((packed({8}, 4, "bfd_split") == Rows{{{1, 2, 3, 4}}, {{5, 6, 7, 8}}}));
  BOOST_TEST((packed({8}, 4, "wrapped") == Rows{{{1, 2, 3, 4}}, {{5, 6, 7, 8}}}));
  BOOST_TEST((packed({1, 0, 1}, 3, "bfd") == Rows{{{1}, {2}}}));
  BOOST_TEST((packed({1, 1, 1}, 1, "bfd") == Rows{{{1}}, {{2}}, {{3}}}));
}

BOOST_AUTO_TEST_CASE(packing_is_best_fit_decreasing_and_loses_nothing) {
  std::mt19937_64 random(3);
  for (const std::int64_t sequence : {1, 7, 64, 1000}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<std::int64_t> lengths;
      for (std::uint64_t n = 1 + random() % 120; n > 0; --n)
        lengths.push_back(1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(2 * sequence)));
      const auto offsets = offsets_of(lengths);
      for (const char* strategy : {"bfd", "bfd_split"}) {
        const PackingResult got = pack_rows(offsets, sequence, strategy);
        std::vector<Span> pieces;
        for (std::size_t d = 0; d < lengths.size(); ++d) {
          pieces.push_back({offsets[d], std::min(lengths[d], sequence)});
          if (std::string(strategy) == "bfd_split" && lengths[d] > sequence)
            pieces.push_back({offsets[d] + sequence, lengths[d] - sequence});
        }
        const auto want = plain_best_fit(pieces, sequence);
        BOOST_REQUIRE(got.rows.size() == want.size());
        std::set<std::int64_t> seen;
        std::int64_t kept = 0;
        for (std::size_t r = 0; r < want.size(); ++r) {
          BOOST_REQUIRE(got.rows[r].size() == want[r].size());
          std::int64_t used = 0;
          for (std::size_t i = 0; i < want[r].size(); ++i) {
            BOOST_REQUIRE(got.rows[r][i].from == want[r][i].from);
            BOOST_REQUIRE(got.rows[r][i].count == want[r][i].count);
            used += want[r][i].count;
            for (std::int64_t t = 0; t < want[r][i].count; ++t) seen.insert(want[r][i].from + t);
          }
          BOOST_TEST(used <= sequence);
          kept += used;
        }
        BOOST_TEST(static_cast<std::int64_t>(seen.size()) == kept);  // no token twice
        BOOST_TEST(kept + got.dropped_tokens == offsets.back());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(many_documents_pack_fast, *boost::unit_test::timeout(20)) {
  std::mt19937_64 random(9);
  std::vector<std::int64_t> lengths(400000);
  for (std::int64_t& n : lengths) n = 1 + static_cast<std::int64_t>(random() % 3000);
  const PackingResult got = pack_rows(offsets_of(lengths), 4096, "bfd");
  std::int64_t kept = 0;
  for (const PackedRow& row : got.rows)
    for (const Span& s : row) kept += s.count;
  BOOST_TEST(kept == offsets_of(lengths).back());
  BOOST_TEST(static_cast<double>(kept) > 0.98 * 4096 * static_cast<double>(got.rows.size()));
}

BOOST_AUTO_TEST_CASE(order_of_rows) {
  const auto plain = row_order(5, 42, 0, false);
  BOOST_TEST((plain == std::vector<std::int64_t>{0, 1, 2, 3, 4}));
  for (const std::int64_t rows : {0, 1, 2, 7, 1000}) {
    auto order = row_order(rows, 42, 3, true);
    BOOST_TEST((order == row_order(rows, 42, 3, true)));
    std::sort(order.begin(), order.end());
    BOOST_TEST((order == row_order(rows, 0, 0, false)));
  }
  BOOST_TEST((row_order(50, 42, 0, true) != row_order(50, 42, 1, true)));
  BOOST_TEST((row_order(50, 42, 0, true) != row_order(50, 43, 0, true)));
}

BOOST_AUTO_TEST_CASE(every_permutation_is_equally_likely) {
  std::map<std::vector<std::int64_t>, int> counts;
  constexpr int kDraws = 24000;
  for (int seed = 0; seed < kDraws; ++seed) ++counts[row_order(4, seed, 1, true)];
  BOOST_TEST(counts.size() == 24u);
  double chi2 = 0;  // 23 degrees of freedom: above 49.7 once in a thousand
  for (const auto& [order, n] : counts) chi2 += (n - kDraws / 24.0) * (n - kDraws / 24.0) / (kDraws / 24.0);
  BOOST_TEST(chi2 < 49.7);
}

BOOST_AUTO_TEST_SUITE_END()
