// Rows cut for a rank: ids, targets and positions compared exactly, never by a loss.
#include "data/dataset.h"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <random>
#include "data/idle_queue.h"
#include "support/refusal.h"
#include "support/temp_folder.h"
#include "support/world.h"

using namespace annulus;
using annulus::test::check_refused;
using annulus::test::IdleQueue;
using annulus::test::TempFolder;

namespace {

using Ids = std::vector<std::int32_t>;

/// A token file of documents with these lengths; token i of the file is id i + 1. `masked` tokens are no
/// targets.
class Tokens {
 public:
  Tokens(const std::vector<std::int64_t>& lengths, const std::vector<std::int64_t>& masked = {}) {
    part_.lengths = lengths;
    part_.ids.resize(
        static_cast<std::size_t>(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0})));
    std::iota(part_.ids.begin(), part_.ids.end(), 1);
    part_.mask.assign(part_.ids.size(), 1);
    for (const std::int64_t m : masked) part_.mask[static_cast<std::size_t>(m)] = 0;
    std::int64_t at = 0;
    for (const std::int64_t n : lengths) {
      part_.mask[static_cast<std::size_t>(at)] = 0;
      at += n;
    }
    world_ = make_self_comm(queue_);
    write_token_file(*world_, path(), part_, {});
  }
  std::string path() const { return folder_.path("tokens.h5"); }
  Dataset open(std::int64_t sequence, const std::string& packing, std::int64_t vocabulary = 1 << 30) {
    DataSection d;
    d.sequence = sequence;
    d.packing = packing;
    return Dataset(*world_, path(), d, vocabulary);
  }
  const TokenPart& part() const { return part_; }

 private:
  TempFolder folder_;
  IdleQueue queue_;
  std::unique_ptr<Comm> world_;
  TokenPart part_;
};

Grid ring_grid(int ring, int ring_index, int ulysses = 1, int ulysses_index = 0) {
  Grid g;
  g.world = ring * ulysses;
  g.ring = ring;
  g.ring_index = ring_index;
  g.ulysses = ulysses;
  g.ulysses_index = ulysses_index;
  g.rank = ring_index * ulysses + ulysses_index;
  return g;
}

const std::vector<std::int64_t> kNoWindow{0};

LocalRow whole_row(Dataset& d, std::int64_t row) {
  return d.local_row(row, Grid{}, 1, kNoWindow);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data)

BOOST_AUTO_TEST_CASE(a_data_set_says_what_is_in_it) {
  Tokens tokens({5, 2, 3, 1});
  BOOST_TEST(tokens.open(4, "bfd").describe() ==
             tokens.path() +
                 ": 4 documents, 11 tokens; packing (bfd) fills 83.3 % of 3 rows; 1 tokens do not fit "
                 "and are dropped");
  BOOST_TEST(tokens.open(11, "wrapped").describe() ==
             tokens.path() + ": 4 documents, 11 tokens; packing (wrapped) fills 100.0 % of 1 rows");
}

BOOST_AUTO_TEST_CASE(targets_cross_the_edges_of_zigzag_shards) {
  Tokens t({8});
  Dataset d = t.open(8, "bfd");
  BOOST_TEST(d.rows() == 1);
  // Ring of 2: member 0 holds positions 0, 1, 6, 7 and member 1 holds 2 to 5. Ids are positions + 1.
  const LocalRow a = d.local_row(0, ring_grid(2, 0), 1, kNoWindow),
                 b = d.local_row(0, ring_grid(2, 1), 1, kNoWindow);
  BOOST_TEST((a.ids == Ids{1, 2, 7, 8}));
  BOOST_TEST((a.targets == Ids{2, 3, 8, -1}));
  BOOST_TEST((a.positions == std::vector<std::int64_t>{0, 1, 6, 7}));
  BOOST_TEST((b.ids == Ids{3, 4, 5, 6}));
  BOOST_TEST((b.targets == Ids{4, 5, 6, 7}));
  BOOST_TEST((b.positions == std::vector<std::int64_t>{2, 3, 4, 5}));
}

BOOST_AUTO_TEST_CASE(the_last_token_of_a_document_has_no_target) {
  Tokens t({3, 3});
  Dataset d = t.open(6, "bfd");
  const LocalRow row = whole_row(d, 0);
  BOOST_TEST((row.ids == Ids{1, 2, 3, 4, 5, 6}));
  BOOST_TEST((row.targets == Ids{2, 3, -1, 5, 6, -1}));
  BOOST_TEST((row.positions == std::vector<std::int64_t>{0, 1, 2, 0, 1, 2}));
  BOOST_TEST(d.tokens() == 6);
  BOOST_TEST(d.row_tokens(0) == 6);
}

BOOST_AUTO_TEST_CASE(masked_tokens_are_no_targets) {
  Tokens t({6}, {2, 3});
  Dataset d = t.open(6, "none");
  BOOST_TEST((whole_row(d, 0).targets == Ids{2, -1, -1, 5, 6, -1}));
}

BOOST_AUTO_TEST_CASE(a_document_that_was_cut_begins_again) {
  Tokens t({5, 2});
  Dataset d = t.open(3, "bfd_split");
  BOOST_TEST(d.rows() == 3);
  BOOST_TEST(d.dropped_tokens() == 0);
  const LocalRow rest = whole_row(d, 1);      // tokens 3 and 4 of the first document
  BOOST_TEST((rest.ids == Ids{4, 5, 0, 0}));  // 2 chunks: padded to 4
  BOOST_TEST((rest.targets == Ids{5, -1, -1, -1}));
  BOOST_TEST((rest.positions == std::vector<std::int64_t>{0, 1, 0, 0}));
  Dataset cut = t.open(3, "bfd");
  BOOST_TEST(cut.dropped_tokens() == 2);
  BOOST_TEST(cut.tokens() == 5);
}

BOOST_AUTO_TEST_CASE(a_wrapped_row_is_one_document) {
  Tokens t({3, 4});
  Dataset d = t.open(4, "wrapped");
  BOOST_TEST(d.rows() == 2);
  const LocalRow first = whole_row(d, 0), last = whole_row(d, 1);
  BOOST_TEST((first.ids == Ids{1, 2, 3, 4}));
  BOOST_TEST((first.targets == Ids{2, 3, -1, -1}));  // the first token of a document is never a target
  BOOST_TEST((first.positions == std::vector<std::int64_t>{0, 1, 2, 3}));
  BOOST_TEST((last.ids == Ids{5, 6, 7, 0}));
  BOOST_TEST((last.targets == Ids{6, 7, -1, -1}));
  BOOST_TEST(last.map.shape().used == 3);
}

BOOST_AUTO_TEST_CASE(an_empty_row_is_all_padding) {
  Tokens t({5});
  Dataset d = t.open(5, "bfd");
  const LocalRow row = d.local_row(-1, ring_grid(3, 1), 1, kNoWindow);
  BOOST_TEST(static_cast<std::int64_t>(row.ids.size()) == row.map.local_tokens());
  BOOST_TEST(std::all_of(row.ids.begin(), row.ids.end(), [](int i) { return i == 0; }));
  BOOST_TEST(std::all_of(row.targets.begin(), row.targets.end(), [](int i) { return i == -1; }));
  BOOST_TEST(row.map.shape().used == 0);
}

BOOST_AUTO_TEST_CASE(every_layout_holds_the_same_row) {
  // Gathered over the ranks by row position, ids, targets and positions are those of the uncut row.
  std::mt19937_64 random(23);
  for (const char* packing : {"bfd", "bfd_split", "wrapped", "none"}) {
    std::vector<std::int64_t> lengths, masked;
    for (int n = 0; n < 9; ++n) lengths.push_back(1 + static_cast<std::int64_t>(random() % 40));
    for (std::int64_t i = 0; i < 12; ++i) masked.push_back(static_cast<std::int64_t>(random() % 9) + i);
    masked.erase(std::remove_if(masked.begin(), masked.end(),
                                [&](std::int64_t m) {
                                  return m >=
                                         std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
                                }),
                 masked.end());
    Tokens t(lengths, masked);
    Dataset d = t.open(37, packing);
    for (std::int64_t r = 0; r < d.rows(); ++r) {
      const LocalRow want = whole_row(d, r);
      for (const auto& [ring, ulysses, per_member] :
           {std::tuple{2, 1, 1}, {3, 1, 1}, {2, 2, 1}, {1, 3, 1}, {2, 1, 4}, {3, 2, 2}}) {
        std::int64_t seen = 0;
        for (int i = 0; i < ring; ++i) {
          for (int u = 0; u < ulysses; ++u) {
            const LocalRow part = d.local_row(r, ring_grid(ring, i, ulysses, u), per_member, kNoWindow);
            for (const Run& run : part.map.local_runs(i, u)) {
              for (std::int64_t k = 0; k < run.count; ++k) {
                const std::int64_t p = run.position + k;
                const auto at = static_cast<std::size_t>(run.at + k), whole = static_cast<std::size_t>(p);
                const bool inside = p < want.map.shape().used;
                BOOST_REQUIRE(part.ids[at] == (inside ? want.ids[whole] : 0));
                BOOST_REQUIRE(part.targets[at] == (inside ? want.targets[whole] : -1));
                BOOST_REQUIRE(part.positions[at] == (inside ? want.positions[whole] : 0));
                seen += inside ? 1 : 0;
              }
            }
          }
        }
        BOOST_TEST(seen == d.row_tokens(r));
      }
      for (const Ids::value_type target : want.targets)
        if (target >= 0) BOOST_REQUIRE(t.part().mask[static_cast<std::size_t>(target - 1)] == 1);
    }
  }
}

BOOST_AUTO_TEST_CASE(thirty_two_tokens_over_two_ranks_exactly) {
  Tokens t({32});
  Dataset d = t.open(32, "bfd");
  for (int i = 0; i < 2; ++i) {
    const LocalRow row = d.local_row(0, ring_grid(2, i), 1, kNoWindow);
    for (std::size_t k = 0; k < row.ids.size(); ++k)
      BOOST_TEST(row.targets[k] == (row.ids[k] == 32 ? -1 : row.ids[k] + 1));
  }
}

BOOST_AUTO_TEST_CASE(ids_beyond_the_vocabulary_are_named_by_their_place) {
  Tokens t({3, 4});
  check_refused(Exit::input, {"tokens.h5", "token 5 (document 1, its token 2)", "id 6", "vocabulary of 6"},
                [&] { t.open(4, "bfd", 6); });
  BOOST_TEST(t.open(4, "bfd", 8).rows() == 2);
  check_refused(Exit::input, {"nowhere.h5"}, [&] {
    IdleQueue q;
    const auto self = make_self_comm(q);
    Dataset(*self, "/nowhere.h5", DataSection{}, 8);
  });
}

BOOST_AUTO_TEST_CASE(text_to_rows) {
  const TempFolder f;
  IdleQueue q;
  const auto self = make_self_comm(q);
  DataSection d;
  d.tokenizer = "bytes";
  d.sequence = 5;
  ModelConfig m;
  m.V = 300;
  m.eos = {257};
  tokenize_files(*self, {f.write("a.jsonl", "{\"text\": \"abc\"}\n{\"text\": \"z\"}\n")}, d, m, "/no/model",
                 f.path("t.h5"));
  Dataset rows(*self, f.path("t.h5"), d, m.V);
  BOOST_TEST(rows.rows() == 2);
  const LocalRow first = whole_row(rows, 0), second = whole_row(rows, 1);
  BOOST_TEST((first.ids == Ids{'a', 'b', 'c', 257, 0, 0}));
  BOOST_TEST((first.targets == Ids{'b', 'c', 257, -1, -1, -1}));
  BOOST_TEST((second.ids == Ids{'z', 257, 0, 0, 0, 0}));
  BOOST_TEST(rows.file().source().at("documents") == "2");
  BOOST_TEST(rows.file().source().at("tokenizer") == "bytes");
}

BOOST_AUTO_TEST_SUITE_END()
