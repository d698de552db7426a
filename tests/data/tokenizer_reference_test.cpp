// The ids of the Python tokenizers library on a large corpus of awkward texts, for files of several families
// that the library trains here. Needs .venv with that library (`make venv`); else it says that it is skipped.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include "data/tokenizer/tokenizer.h"
#include "support/data.h"
#include "support/temp_folder.h"

using namespace annulus;
using annulus::test::TempFolder;
using annulus::test::test_data;

namespace {

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// The rows of a file of counts, each followed by as many values.
template <class Row>
std::vector<Row> rows_of(const std::string& path) {
  const std::string bytes = slurp(path);
  std::vector<Row> out;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint64_t count = 0;
    std::memcpy(&count, bytes.data() + at, sizeof count);
    at += sizeof count;
    Row& row = out.emplace_back(count, typename Row::value_type{});
    if (count > 0) std::memcpy(row.data(), bytes.data() + at, count * sizeof row[0]);
    at += count * sizeof row[0];
  }
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data)

BOOST_AUTO_TEST_CASE(ids_are_those_of_the_python_library, *boost::unit_test::label("slow")) {
  const std::string python = test_data(".venv/bin/python"),
                    script = test_data("tests/data/tokenizer_reference.py");
  const std::string quiet = " >/dev/null 2>&1";
  if (!std::filesystem::exists(script) ||
      std::system((python + " -c 'import tokenizers'" + quiet).c_str()) != 0) {
    BOOST_TEST_MESSAGE("skipped: no .venv with tokenizers");
    return;
  }
  const TempFolder f;
  BOOST_REQUIRE(std::system((python + " " + script + " " + f.path("") + " >/dev/null").c_str()) == 0);
  const auto corpus = rows_of<std::string>(f.path("corpus"));
  BOOST_REQUIRE(corpus.size() > 3000u);
  for (const char* family : {"qwen", "llama", "o200k", "deepseek", "deepseek2", "gpt2"}) {
    const auto want = rows_of<std::vector<std::int32_t>>(f.path(std::string(family) + ".ids"));
    BOOST_REQUIRE(want.size() == corpus.size());
    Tokenizer tokenizer(f.path(std::string(family) + ".json"));
    const bool composes = read_tokenizer_file(f.path(std::string(family) + ".json")).nfc;
    std::size_t wrong = 0, unlike = 0;
    for (std::size_t i = 0; i < corpus.size(); ++i) {
      std::vector<std::int32_t> ids;
      tokenizer.encode(corpus[i], true, ids);
      if (ids != want[i] && ++wrong < 5) BOOST_TEST_MESSAGE(family << ": " << corpus[i].substr(0, 200));
      if (!composes && tokenizer.decode(ids) != corpus[i]) ++unlike;
    }
    BOOST_TEST(wrong == 0u, family << ": " << wrong << " of " << corpus.size() << " texts differ");
    BOOST_TEST(unlike == 0u, family << ": " << unlike << " texts do not come back");
  }
}

BOOST_AUTO_TEST_SUITE_END()
