// Texts taken apart before lines: where that is right, and that the tokens are the whole's.
#include "data/text_pieces.h"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <random>
#include "data/compress.h"
#include "data/small_tokenizer.h"
#include "data/text_encoder.h"
#include "data/tokenizer/line_cuts.h"
#include "data/tokenizer/unicode.h"
#include "support/temp_folder.h"

using namespace annulus;
using annulus::test::kQwenExpression;
using annulus::test::small_tokenizer;
using annulus::test::TempFolder;

namespace {

using Expressions = std::vector<std::string>;

const std::string kLlama =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kHarmony =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kPlain = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const Expressions kDeepSeek = {
    R"(\p{N}{1,3})", R"([一-龥぀-ゟ゠-ヿ]+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

/// Which of these characters a line may begin with where a text is cut.
std::string cuts(const Expressions& expressions, const std::vector<std::string>& characters) {
  std::vector<SplitStep> steps;
  for (const std::string& e : expressions) steps.push_back({e});
  LineCuts lines(steps, "t.json");
  std::string out;
  for (const std::string& c : characters) {
    std::size_t at = 0;
    if (lines.before(next_code_point(c, at))) out += c;
    BOOST_TEST(lines.before(next_code_point(c, at = 0)) == (!out.empty() && out.ends_with(c)));
  }
  return out;
}

nlohmann::json file_of(const Expressions& expressions) {
  nlohmann::json file = small_tokenizer(
      {{"a", "b"}, {"\n", "\n"}, {" ", "a"}, {"\n\n", "\n"}, {" ", " "}, {"e", "e"}}, {"<|end|>", "ab!"});
  nlohmann::json steps = nlohmann::json::array();
  for (const std::string& e : expressions)
    steps.push_back({{"type", "Split"}, {"pattern", {{"Regex", e}}}, {"behavior", "Isolated"}});
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  file["pre_tokenizer"]["pretokenizers"] = steps;
  return file;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data)

BOOST_AUTO_TEST_CASE(lines_before_which_expressions_let_a_text_be_cut) {
  const std::vector<std::string> some = {"a", "Z", "é", "漢", "ア", "1", "'",
                                         "#", "/", " ", "\t", "\r", "\n"};
  BOOST_TEST(cuts({kQwenExpression}, some) == "aZé漢ア1'#/");
  BOOST_TEST(cuts({kLlama}, some) == "aZé漢ア1'#/");
  BOOST_TEST(cuts({kHarmony}, some) == "aZé漢ア1'#");  // which takes \n and / together
  BOOST_TEST(cuts({kPlain}, some) == "aZé漢ア1'#/");
  BOOST_TEST(cuts(kDeepSeek, some) == "aZé'#/");  // an earlier step cuts at the others
  BOOST_TEST(cuts({R"([^x]+|x)"}, {"a", "x"}) == "x");
  BOOST_TEST(cuts({R"(\s+a?|b|\p{L})"}, {"a", "b", "c"}) == "bc");
  BOOST_TEST(cuts({R"((?:\s|b)+|\p{L})"}, {"a", "b"}) == "a");
  BOOST_TEST(cuts({R"((?:\sa|b)|\p{L}|\s)"}, {"a", "b"}) == "b");
  BOOST_TEST(cuts({R"((?i:\n{2,}B|[c\n]{1,2})|\p{L}|\s)"}, {"b", "c", "d"}) == "d");
  BOOST_TEST(cuts({R"(\p{L}+)"}, {"a"}).empty());             // what lies between may hold a line's end
  BOOST_TEST(cuts({R"(\n(?!a)|\p{L})"}, {"a", "b"}) == "b");  // one character ahead
  BOOST_TEST(cuts({R"(\s+(?!ab)|\p{L})"}, {"a"}).empty());    // two
  BOOST_TEST(cuts({R"(\s|(?<=\n)a|\p{L})"}, {"a"}).empty());  // looks back
  BOOST_TEST(cuts({R"(\s|^a|\p{L})"}, {"a"}).empty());
  BOOST_TEST(cuts({}, {"a"}).empty());
}

BOOST_AUTO_TEST_CASE(pieces_of_a_text_have_the_tokens_of_the_whole) {
  const std::vector<std::string> words = {
      "a",  "ab", "Ab1",     "\n",     "\n\n", "\r\n",    " ",   "  ", "\t", "'s", "!",    "/",   "漢",
      "ア", "é",  "e\u0301", "\u0301", "12",   "<|end|>", "ab!", "한", "ᆨ", "👩",  "　\n", " \n", "\u2028"};
  std::mt19937_64 random(5);
  const TempFolder f;
  int places = 0;
  for (const Expressions& e : {Expressions{kQwenExpression}, {kLlama}, {kHarmony}, {kPlain}, kDeepSeek}) {
    DataSection d;
    d.tokenizer = f.write("tokenizer.json", file_of(e).dump());
    ModelConfig model;
    model.V = 1000;
    model.eos = {999};
    for (int round = 0; round < 120; ++round) {
      d.allow_special = round % 3 == 0;
      TextEncoder encoder(d, model, "");
      BOOST_REQUIRE(encoder.cuts());
      std::string text;
      for (std::uint64_t n = 1 + random() % 60; n > 0; --n) text += words[random() % words.size()];
      std::vector<std::int32_t> whole, joined;
      encoder.append(text, whole);
      const bool packed = round % 5 == 0;
      const std::string path = f.write("t.txt", packed ? test::zstd(text) : text);
      const auto size = static_cast<std::int64_t>(text.size());
      const auto may_cut = [&](std::string_view t, std::size_t at) { return encoder.cuts_at(t, at); };
      const auto ranks = static_cast<std::int64_t>(1 + random() % 5);
      std::string seen;
      for (std::int64_t r = 0; r < ranks; ++r) {
        TextPieces pieces(path, size, size * r / ranks, size * (r + 1) / ranks,
                          packed ? Compression::zstd : Compression::none, may_cut,
                          static_cast<std::int64_t>(1 + random() % 40));
        for (; pieces.next(); ++places) {
          BOOST_TEST(pieces.at() == static_cast<std::int64_t>(seen.size()));
          seen += pieces.text();
          BOOST_TEST(pieces.last() == (seen.size() == text.size()));
          encoder.append({.text = pieces.text(), .behind = pieces.behind(), .first = pieces.at() == 0},
                         joined);
        }
      }
      BOOST_TEST(seen == text);
      BOOST_TEST(joined == whole, boost::test_tools::per_element());
    }
  }
  BOOST_TEST(places > 1000);
}

BOOST_AUTO_TEST_CASE(a_long_text_is_read_in_blocks) {
  const TempFolder f;
  std::string text;
  while (text.size() < (std::size_t{3} << 20)) text += "line " + std::to_string(text.size()) + "\n";
  const std::string path = f.write("t.txt", text);
  const auto size = static_cast<std::int64_t>(text.size());
  const auto any = [](std::string_view, std::size_t) { return true; };
  const auto none = [](std::string_view, std::size_t) { return false; };
  TextPieces pieces(path, size, 0, size, Compression::none, any, 1 << 16);
  std::size_t longest = 0, all = 0;
  for (; pieces.next(); all += pieces.text().size()) longest = std::max(longest, pieces.text().size());
  BOOST_TEST(all == text.size());
  BOOST_TEST(longest < (std::size_t{1} << 16) + 20);
  TextPieces whole(path, size, 0, 10, Compression::none, none);
  BOOST_REQUIRE(whole.next());
  BOOST_TEST((whole.text() == text));
  BOOST_TEST(whole.last());
  BOOST_TEST(!whole.next());
  TextPieces later(path, size, 10, size, Compression::none, none);
  BOOST_TEST(!later.next());
}

BOOST_AUTO_TEST_SUITE_END()
