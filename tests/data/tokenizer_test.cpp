// Text to tokens and back, with small files made here.
#include "data/tokenizer/tokenizer.h"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <random>
#include "core/check.h"
#include "data/small_tokenizer.h"
#include "data/tokenizer/unicode.h"

using namespace annulus;
using annulus::test::small_tokenizer;
using nlohmann::json;

namespace {

using Ids = std::vector<std::int32_t>;
using Pieces = std::vector<std::string>;

Tokenizer made(const json& file) {
  return Tokenizer(parse_tokenizer(file.dump(), "t.json"), "t.json");
}

Ids encoded(Tokenizer& t, const std::string& text, bool added = true) {
  Ids out;
  t.encode(text, added, out);
  return out;
}

/// What each token stands for.
Pieces pieces(Tokenizer& t, const std::string& text, bool added = true) {
  Pieces out;
  for (const std::int32_t id : encoded(t, text, added)) out.push_back(t.decode(std::vector{id}));
  return out;
}

/// A file that cuts texts by these expressions and whose every piece is one token, for the texts given.
Pieces cut(const Pieces& expressions, const std::string& text, const json& also = {}) {
  json file = small_tokenizer({});
  json steps = json::array();
  for (const std::string& e : expressions)
    steps.push_back({{"type", "Split"}, {"pattern", {{"Regex", e}}}, {"behavior", "Isolated"}});
  if (!also.is_null()) steps.push_back(also);
  steps.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"use_regex", expressions.empty() && also.is_null()}});
  file["pre_tokenizer"]["pretokenizers"] = steps;
  file["normalizer"] = nullptr;
  file["model"]["ignore_merges"] = true;
  int next = 256;
  for (std::size_t from = 0; from < text.size(); ++from)  // every substring is a token
    for (std::size_t n = 2; from + n <= text.size(); ++n) {
      const std::string word = annulus::test::written(text.substr(from, n));
      if (!file["model"]["vocab"].contains(word)) file["model"]["vocab"][word] = next++;
    }
  Tokenizer t = made(file);
  return pieces(t, text);
}

/// Merges done as the definition says.
Ids plain_merges(const std::string& word, const std::vector<Merge>& merges) {
  Ids ids;
  for (const char c : word) ids.push_back(static_cast<std::uint8_t>(c));
  while (true) {
    std::size_t best = merges.size(), at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i)
      for (std::size_t m = 0; m < best; ++m)
        if (merges[m].left == ids[i] && merges[m].right == ids[i + 1]) best = m, at = i;
    if (best == merges.size()) return ids;
    ids[at] = merges[best].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data)

BOOST_AUTO_TEST_CASE(merges_follow_their_ranks_in_both_spellings) {
  json file = small_tokenizer({{"l", "o"}, {"lo", "w"}, {"e", "r"}, {" ", "low"}});
  Tokenizer t = made(file);
  BOOST_TEST((pieces(t, "lower low lo") == Pieces{"low", "er", " low", " ", "lo"}));
  BOOST_TEST((encoded(t, "low") == Ids{257}));
  BOOST_TEST(t.ids() == 260);
  json lists = file;
  lists["model"]["merges"] = json::array();
  for (const auto& [left, right] : {std::pair("l", "o"), {"lo", "w"}, {"e", "r"}, {"\u0120", "low"}})
    lists["model"]["merges"].push_back(json::array({left, right}));
  Tokenizer other = made(lists);
  BOOST_TEST((encoded(other, "lower low lo") == encoded(t, "lower low lo")));
  // A token that no merge leads to counts with ignore_merges alone.
  file["model"]["vocab"]["slow"] = 300;
  Tokenizer merged = made(file);
  BOOST_TEST((pieces(merged, "slow") == Pieces{"s", "low"}));
  file["model"]["ignore_merges"] = true;
  Tokenizer whole = made(file);
  BOOST_TEST((encoded(whole, "slow") == Ids{300}));
  BOOST_TEST((pieces(whole, "slower") == Pieces{"s", "low", "er"}));
}

BOOST_AUTO_TEST_CASE(words_of_any_length_merge_as_defined) {
  std::mt19937 random(3);
  const std::string letters = "abc";
  std::vector<Merge> merges;
  std::vector<std::int32_t> known = {'a', 'b', 'c'};
  for (std::int32_t next = 256; next < 290; ++next) {
    merges.push_back({known[random() % known.size()], known[random() % known.size()], next});
    known.push_back(next);
  }
  merges.push_back(merges[4]);
  std::vector<Merge> lasting;  // of two merges of the same pair the later counts
  for (auto m = merges.begin(); m != merges.end(); ++m)
    if (std::none_of(m + 1, merges.end(),
                     [&](const Merge& later) { return later.left == m->left && later.right == m->right; }))
      lasting.push_back(*m);
  std::array<std::int32_t, 256> bytes{};
  for (std::size_t b = 0; b < 256; ++b) bytes[b] = static_cast<std::int32_t>(b);
  Bpe bpe(bytes, merges, {});
  for (const std::size_t length : {1, 2, 3, 5, 17, 63, 64, 65, 66, 127, 128, 129, 130, 301})
    for (int round = 0; round < 20; ++round) {
      std::string word;
      for (std::size_t i = 0; i < length; ++i) word += letters[random() % (round % 2 == 0 ? 3 : 2)];
      const Ids want = plain_merges(word, lasting);
      for (int again = 0; again < 2; ++again) {  // met first and remembered
        Ids got;
        bpe.encode(word, got);
        BOOST_TEST((got == want), word);
      }
    }
}

BOOST_AUTO_TEST_CASE(the_word_cache_forgets_when_full_and_stays_right) {
  WordCache cache;
  for (std::int32_t i = 0; i < 600'000; ++i) {
    const std::string word = "w" + std::to_string(i);
    const std::int32_t ids[] = {i, -i};
    cache.insert(word, WordCache::hash(word), ids);
    if (i % 1009 != 0) continue;
    Ids got;
    BOOST_TEST(cache.find(word, WordCache::hash(word), got));
    BOOST_TEST((got == Ids{i, -i}));
  }
  Ids got;
  BOOST_TEST(!cache.find("w1", WordCache::hash("w1"), got));
  BOOST_TEST(got.empty());
}

BOOST_AUTO_TEST_CASE(added_tokens_are_cut_from_the_raw_text_first) {
  json file = small_tokenizer({}, {"<|im_end|>", "<|im_end|>x", "e\u0301", "<|im"});
  Tokenizer t = made(file);
  BOOST_TEST((pieces(t, "X.<|im_end|>") == Pieces{"X", ".", "<|im_end|>"}));
  BOOST_TEST((pieces(t, "<|im_end|>xx<|im_end") == Pieces{"<|im_end|>x", "x", "<|im", "_", "e", "n", "d"}));
  BOOST_TEST((pieces(t, "<|im_end|><|im_end|>") == Pieces{"<|im_end|>", "<|im_end|>"}));
  BOOST_TEST((pieces(t, "e\u0301\u0301") == Pieces{"e\u0301", "\xcc", "\x81"}));  // the token before NFC
  BOOST_TEST((pieces(t, "<|im", false) == Pieces{"<", "|", "i", "m"}));
  BOOST_TEST(encoded(t, "").empty());
  BOOST_TEST((t.id_of("<|im_end|>") == 256));
  BOOST_TEST((!t.id_of("<|nothing|>")));
  // With `normalized`, after it.
  file["added_tokens"][2]["normalized"] = true;
  Tokenizer later = made(file);
  BOOST_TEST((pieces(later, "e\u0301") == Pieces{"e\u0301"}));
  BOOST_TEST((pieces(later, "\u00e9") == Pieces{"e\u0301"}));
}

BOOST_AUTO_TEST_CASE(texts_are_cut_as_the_expressions_say) {
  using annulus::test::kQwenExpression;
  BOOST_TEST((cut({kQwenExpression}, "  x") == Pieces{" ", " x"}));
  BOOST_TEST((cut({kQwenExpression}, "\r\n\r\n  a") == Pieces{"\r\n\r\n", " ", " a"}));
  BOOST_TEST((cut({kQwenExpression}, "Don'T 12.") == Pieces{"Don", "'T", " ", "1", "2", "."}));
  BOOST_TEST((cut({kQwenExpression}, "\u0085\u0085y") == Pieces{"\u0085", "\u0085y"}));  // white space
  BOOST_TEST((cut({kQwenExpression}, "\u180e\u180ey") == Pieces{"\u180e\u180e", "y"}));  // none
  BOOST_TEST((cut({R"([^\S\n]+)"}, "a \u3000\nb") == Pieces{"a", " \u3000", "\nb"}));    // \S in a class
  BOOST_TEST((cut({R"([\s\d]+|\v|\u00e9)"}, "a 1\vb\u00e9c") == Pieces{"a", " 1\v", "b", "\u00e9", "c"}));
  // Each step sees the pieces of the one before it alone.
  BOOST_TEST((cut({R"(\p{N}{1,3})", R"(\s+(?!\S))"}, "x  1234") == Pieces{"x", "  ", "123", "4"}));
  BOOST_TEST((cut({}, "it's  a12") == Pieces{"it", "'s", " ", " a", "12"}));  // ByteLevel's own
  BOOST_TEST((cut({}, "a12", {{"type", "Digits"}, {"individual_digits", true}}) == Pieces{"a", "1", "2"}));
  BOOST_TEST((cut({}, "a12", {{"type", "Digits"}, {"individual_digits", false}}) == Pieces{"a", "12"}));
  const auto removed = [](const char* kind, bool inverted) {
    return json{
        {"type", "Split"}, {"pattern", {{kind, "a."}}}, {"behavior", "Removed"}, {"invert", inverted}};
  };
  BOOST_TEST((cut({}, "xabca.y", removed("Regex", false)) == Pieces{"x", "c", "y"}));
  BOOST_TEST((cut({}, "xabca.y", removed("Regex", true)) == Pieces{"ab", "a."}));
  BOOST_TEST((cut({}, "xabca.y", removed("String", true)) == Pieces{"a."}));
  // $ is the end of any line.
  BOOST_TEST((cut({R"(\s+$)"}, "a  \nb  ") == Pieces{"a", "  ", "\nb", "  "}));
}

BOOST_AUTO_TEST_CASE(matches_too_deep_for_compiled_code_are_interpreted) {
  Pattern p("(?:ab|[ac]|b(?=c))+", "t.json");
  std::string text;
  for (int i = 0; i < 700'000; ++i) text += i % 3 == 0 ? "ab" : "a";
  Pattern::Match m;
  BOOST_REQUIRE(p.find(text + "xb", 0, m));
  BOOST_TEST(m.begin == 0u);
  BOOST_TEST(m.end == text.size());
  BOOST_TEST(!p.find("xb", 1, m));
}

BOOST_AUTO_TEST_CASE(a_megabyte_without_a_space_takes_a_moment) {
  Tokenizer t = made(small_tokenizer({{"a", "a"}, {"aa", "aa"}, {"b", "a"}, {"aaaa", "aaaa"}}));
  const auto seconds = [&](std::size_t length) {
    std::string text(length, 'a');
    text[length / 2] = 'b';
    const auto start = std::chrono::steady_clock::now();
    const Ids ids = encoded(t, text);
    BOOST_TEST(t.decode(ids) == text);
    BOOST_TEST(ids.size() < length / 8 + 10);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  seconds(1000);
  const double short_one = seconds(std::size_t{1} << 16), long_one = seconds(std::size_t{1} << 20);
  BOOST_TEST(long_one < 16 * 8 * short_one + 0.5);  // a quadratic way takes 256 times as long
}

BOOST_AUTO_TEST_CASE(texts_are_composed) {
  std::string b;
  const auto form = [&](const std::string& text) { return std::string(nfc(text, b)); };
  const Pieces same = {"", "plain", "\u00e9t\u00e9", "\u4f60\u597d", "a\u0334", "\u0301", "x\u0f71\u0f72"};
  for (const std::string& text : same) BOOST_TEST(form(text) == text);
  BOOST_TEST(form("e\u0301") == "\u00e9");
  BOOST_TEST(form("ae\u0301be\u0301") == "a\u00e9b\u00e9");
  BOOST_TEST(form("a\u0301\u0323") == "\u1ea1\u0301");  // by class, then composed
  BOOST_TEST(form("\u212b\u2126") == "\u00c5\u03a9");   // Angstrom and Ohm
  BOOST_TEST(form("\u304b\u3099x") == "\u304cx");       // kana with its voicing mark
  BOOST_TEST(form("\u1112\u1161\u11ab") == "\ud55c");   // Hangul
  BOOST_TEST(form("\ud558\u11ab") == "\ud55c");
  BOOST_TEST(form("\u0958") == "\u0915\u093c");          // excluded from composition
  BOOST_TEST(form("a\u0898\u0301") == "a\u0898\u0301");  // a mark of Unicode 14
  std::string marks = "a";
  for (int i = 0; i < 100'000; ++i) marks += "\u0301";
  for (int i = 0; i < 100'000; ++i) marks += "\u0323";
  const std::string ordered = form(marks);
  BOOST_TEST(ordered.substr(0, 5) == "\u1ea1\u0323");
  BOOST_TEST(ordered.size() == marks.size());
}

BOOST_AUTO_TEST_CASE(invalid_utf8_is_found) {
  const std::pair<std::string, std::int64_t> cases[] = {{"", -1},
                                                        {"abc", -1},
                                                        {"\u00e9\u4f60\U0001f600\U0010ffff", -1},
                                                        {"\xff", 0},
                                                        {"a\x80", 1},
                                                        {"\xc3", 0},
                                                        {"\xc0\xaf", 0},
                                                        {"\xe0\x9f\xbf", 0},
                                                        {"\xed\xa0\x80", 0},
                                                        {"\xf4\x90\x80\x80", 0},
                                                        {"\xf0\x8f\xbf\xbf", 0},
                                                        {"12345678\xe4\xbd", 8},
                                                        {"\xe4\xbd\x41", 0},
                                                        {"\xf5\x80\x80\x80", 0}};
  for (const auto& [text, at] : cases) BOOST_TEST(first_invalid_utf8(text) == at, text);
  Tokenizer t = made(small_tokenizer({}));
  Ids ids;
  BOOST_CHECK_THROW(t.encode("\xff", true, ids), Error);
}

BOOST_AUTO_TEST_SUITE_END()
