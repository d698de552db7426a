// Token files: written by any number of ranks, read by ranges, refused when they contradict themselves.
#include "io/token_file.h"
#include <numeric>
#include "io/h5_save.h"
#include "io/io_support.h"

namespace annulus::test {
namespace {

namespace ut = boost::unit_test;

BOOST_AUTO_TEST_SUITE(io)

/// Documents of 1, 8, 15, ... tokens; the first rank has none, the others `documents` each.
TokenPart part_of(int rank, std::int64_t documents) {
  TokenPart part;
  if (rank == 0) return part;
  for (std::int64_t d = 0; d < documents; ++d) {
    const std::int64_t number = (rank - 1) * documents + d, length = 1 + 7 * number;
    part.lengths.push_back(length);
    for (std::int64_t i = 0; i < length; ++i) {
      part.ids.push_back(static_cast<std::int32_t>((number * 1'000'003 + i) % 151'643));
      part.mask.push_back(i > 0 && i % 3 != 0 ? 1 : 0);
    }
  }
  return part;
}

void check_tokens(int writers) {
  const auto world = all_ranks();
  const RanksFolder folder(*world);
  const std::string path = folder / "tokens.h5";
  constexpr std::int64_t kDocuments = 211;
  // One rank alone takes the part that the second of two would have.
  const TokenPart mine = part_of(writers == 1 ? 1 : world->rank(), kDocuments);
  write_token_file(*world, path, mine, {{"files", "a.jsonl"}, {"tokenizer", "bytes"}});
  const auto file = open_token_file(path);
  file->verify(*world);
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> mask;
  std::vector<std::int64_t> starts = {0};
  for (int r = writers == 1 ? 1 : 0; r < (writers == 1 ? 2 : writers); ++r) {
    const TokenPart theirs = part_of(r, kDocuments);
    ids.insert(ids.end(), theirs.ids.begin(), theirs.ids.end());
    mask.insert(mask.end(), theirs.mask.begin(), theirs.mask.end());
    for (std::int64_t n : theirs.lengths) starts.push_back(starts.back() + n);
  }
  BOOST_TEST((file->documents() == starts));
  BOOST_TEST(file->largest_id() == *std::max_element(ids.begin(), ids.end()));
  BOOST_TEST(file->source().at("files") == "a.jsonl");
  const auto all = static_cast<std::int64_t>(ids.size());
  for (const auto& [from, count] : {std::pair{std::int64_t{0}, all},
                                    {all - 1, std::int64_t{1}},
                                    {std::int64_t{777}, std::int64_t{1301}},
                                    {all, std::int64_t{0}}}) {
    std::vector<std::int32_t> got(static_cast<std::size_t>(count));
    std::vector<std::uint8_t> got_mask(static_cast<std::size_t>(count));
    file->read(from, count, got.data(), got_mask.data());
    BOOST_TEST(std::equal(got.begin(), got.end(), ids.begin() + from));
    BOOST_TEST(std::equal(got_mask.begin(), got_mask.end(), mask.begin() + from));
  }
  std::int32_t id = 0;
  std::uint8_t m = 0;
  check_error(Exit::bug, {"beyond the end"}, [&] { file->read(all, 1, &id, &m); });
}

BOOST_AUTO_TEST_CASE(tokens_come_back) {
  check_tokens(1);
}
BOOST_AUTO_TEST_CASE(tokens_of_2_come_back, *ut::label("ranks2")) {
  check_tokens(2);
}
BOOST_AUTO_TEST_CASE(tokens_of_4_come_back, *ut::label("ranks4")) {
  check_tokens(4);
}

BOOST_AUTO_TEST_CASE(a_file_without_tokens) {
  const auto world = all_ranks();
  const RanksFolder folder(*world);
  write_token_file(*world, folder / "none.h5", TokenPart{}, {});
  const auto file = open_token_file(folder / "none.h5");
  file->verify(*world);
  BOOST_TEST((file->documents() == std::vector<std::int64_t>{0}));
  BOOST_TEST(file->largest_id() == -1);
  file->read(0, 0, nullptr, nullptr);
}

BOOST_AUTO_TEST_CASE(token_files_that_contradict_themselves) {
  const auto world = all_ranks();
  const RanksFolder folder(*world);
  const std::string path = folder / "bad.h5";
  // A small good file with one thing changed.
  struct File {
    std::vector<std::uint32_t> ids = {5, 6, 7, 8, 9};
    std::vector<std::uint8_t> mask = {0, 1, 1, 0, 1};
    std::vector<std::int64_t> documents = {0, 3, 5};
    std::string largest = "9";
  };
  const auto write = [&](const File& f) {
    H5Job job{.path = path, .kind = kTokensFile, .specs = {}, .parts = {}, .facts = {}, .fail = ""};
    if (!f.largest.empty()) job.facts["largest_id"] = f.largest;
    const auto add = [&](const char* name, H5Kind kind, std::size_t n, const void* data) {
      job.parts.push_back({job.specs.size(), 0, static_cast<std::int64_t>(n), data, {}});
      job.specs.push_back({name, {static_cast<std::int64_t>(n)}, kind});
    };
    add("/ids", H5Kind::u32, f.ids.size(), f.ids.data());
    add("/mask", H5Kind::u8, f.mask.size(), f.mask.data());
    add("/documents", H5Kind::i64, f.documents.size(), f.documents.data());
    const auto save = begin_h5(*world, job);
    save->write();
    save->finish();
  };
  const auto refused = [&](const File& f, std::initializer_list<std::string_view> words) {
    write(f);
    check_error(Exit::input, words, [&] { open_token_file(path); });
  };
  refused({.mask = {0, 1}}, {"/mask has 2 entries for 5 ids", "bad.h5"});
  refused({.documents = {0, 3, 4}}, {"/documents does not go from 0 to the 5"});
  refused({.documents = {1, 3, 5}}, {"/documents does not go from 0"});
  refused({.documents = {}}, {"/documents does not go from 0"});
  refused({.documents = {0, 4, 3, 5}}, {"does not ascend at entry 2"});
  refused({.documents = {0, 3, 3, 5}}, {"does not ascend at entry 2"});
  refused({.documents = {0, -1, 5}}, {"does not ascend at entry 1"});
  refused({.largest = ""}, {"lacks largest_id"});
  refused({.largest = "9x"}, {"largest_id '9x'"});
  refused({.largest = "4294967296"}, {"largest_id '4294967296'"});
  std::vector<std::int32_t> ids(5);
  std::vector<std::uint8_t> mask(5);
  const auto bad_read = [&](const File& f, std::initializer_list<std::string_view> words) {
    write(f);
    const auto file = open_token_file(path);
    check_error(Exit::input, words, [&] { file->read(0, 5, ids.data(), mask.data()); });
  };
  bad_read({.ids = {5, 6, 7, 10, 9}}, {"token 3 is above the largest id"});
  bad_read({.ids = {5, 0xFFFFFFFFu, 7, 8, 9}}, {"token 1 is above the largest id"});
  bad_read({.mask = {0, 1, 2, 0, 1}}, {"mask of token 2"});
  save_h5(*world, {path, {}, {}, {}, ""});
  check_error(Exit::input, {"holds weights or a checkpoint"}, [&] { open_token_file(path); });
}

BOOST_AUTO_TEST_CASE(parts_that_contradict_themselves_are_bugs) {
  const auto world = all_ranks();
  const RanksFolder folder(*world);
  const auto bug = [&](const TokenPart& part) {
    check_error(Exit::bug, {"token file"}, [&] { write_token_file(*world, folder / "a.h5", part, {}); });
  };
  bug({{1, 2}, {0}, {2}});
  bug({{1, 2}, {0, 1}, {3}});
  bug({{1, 2}, {0, 1}, {1}});
  bug({{1, 2}, {0, 1}, {2, 0}});
  bug({{1, 2}, {1, 1}, {2}});
  bug({{1, -2}, {0, 1}, {2}});
  bug({{1, 2}, {0, 7}, {2}});
  BOOST_TEST(fs::is_empty(folder.path()));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace annulus::test
