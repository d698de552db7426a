// tokenizer.json: what is refused, and that the sentence names it.
#include "data/tokenizer/tokenizer_file.h"
#include <boost/test/unit_test.hpp>
#include "data/small_tokenizer.h"
#include "data/tokenizer/pattern.h"
#include "data/tokenizer/tokenizer.h"
#include "support/refusal.h"

using namespace annulus;
using annulus::test::check_refused;
using annulus::test::small_tokenizer;
using nlohmann::json;

namespace {

void refused(const std::string& text, std::vector<std::string> parts) {
  parts.insert(parts.begin(), "t.json");
  check_refused(Exit::input, parts, [&] { Tokenizer(parse_tokenizer(text, "t.json"), "t.json"); });
}

/// With one value, at a JSON pointer, replaced.
void refused_with(const std::string& at, const json& value, const std::vector<std::string>& parts) {
  json file = small_tokenizer({{"a", "b"}, {"ab", "c"}}, {"<|end|>", "<x>"});
  file[json::json_pointer(at)] = value;
  refused(file.dump(), parts);
}

void expression_refused(const std::string& expression, const std::string& part) {
  check_refused(Exit::input, {"t.json", part, "not supported"}, [&] { Pattern(expression, "t.json"); });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data)

BOOST_AUTO_TEST_CASE(what_a_tokenizer_file_asks_for_beyond_us_is_refused_by_name) {
  refused_with("/normalizer/type", "NFKC", {"normalizer", "NFKC", "not supported"});
  refused_with("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Lowercase"}}}}},
               {"Lowercase"});
  refused_with("/pre_tokenizer", nullptr, {"pre_tokenizer", "not supported"});
  refused_with("/pre_tokenizer", {{"type", "Metaspace"}}, {"Metaspace"});
  refused_with("/pre_tokenizer/pretokenizers/1", {{"type", "Digits"}, {"individual_digits", true}},
               {"ByteLevel"});
  refused_with("/pre_tokenizer/pretokenizers/1/add_prefix_space", true, {"add_prefix_space"});
  refused_with("/pre_tokenizer/pretokenizers/0/behavior", "MergedWithNext", {"MergedWithNext"});
  refused_with("/pre_tokenizer/pretokenizers/2", {{"type", "Punctuation"}}, {"Punctuation"});
  refused_with("/decoder", nullptr, {"decoder"});
  refused_with("/decoder/type", "WordPiece", {"WordPiece"});
  refused_with("/model/type", "Unigram", {"Unigram"});
  refused_with("/model/dropout", 0.1, {"dropout"});
  refused_with("/model/continuing_subword_prefix", "##", {"continuing_subword_prefix"});
  refused_with("/model/end_of_word_suffix", "</w>", {"end_of_word_suffix"});
  refused_with("/added_tokens/0/lstrip", true, {"added_tokens 0", "lstrip"});
  refused_with("/added_tokens/1/rstrip", true, {"added_tokens 1", "rstrip"});
  refused_with("/added_tokens/1/single_word", true, {"single_word"});
  refused_with("/post_processor", {{"type", "BertProcessing"}}, {"BertProcessing"});
}

BOOST_AUTO_TEST_CASE(damaged_tokenizer_files_are_refused) {
  refused("", {"is not JSON at byte 0"});
  refused("{\"model\": 1", {"is not JSON"});
  refused("[]", {"no object"});
  refused("{}", {"no model"});
  refused("{\"a\": 1, \"a\": 2}", {"\"a\" twice"});
  refused(std::string(100, '[') + std::string(100, ']'), {"nested deeper"});
  refused("{\"model\": {\"vocab\": {\"\xff\": 1}}}", {"is not JSON"});
  refused("{\"model\": {\"type\": \"WordLevel\", \"vocab\": {}}}", {"without merges"});
  refused_with("/model/vocab", json::object(), {"vocab", "no object with tokens"});
  refused_with("/model/vocab", {{"a", 0}}, {"no token for the byte 0"});
  refused_with("/model/vocab/a", -1, {"\"a\" has no usable id"});
  refused_with("/model/vocab/a", 1.5, {"\"a\" has no usable id"});
  refused_with("/model/vocab/a", 1u << 30, {"\"a\" has no usable id"});
  refused_with("/model/vocab/a", 98, {"two tokens have the id"});
  refused_with("/model/merges", 7, {"merges", "no list"});
  refused_with("/model/merges/1", "ab", {"merge 1", "space"});
  refused_with("/model/merges/1", "a b c", {"merge 1", "space"});
  refused_with("/model/merges/1", json{"a"}, {"merge 1", "list of two"});
  refused_with("/model/merges/1", "q r", {"merge 1", "\"qr\"", "not in the vocabulary"});
  refused_with("/added_tokens/0/content", "", {"added_tokens 0", "empty"});
  refused_with("/added_tokens/0/id", 3, {"\"<|end|>\"", "3"});
  refused_with("/added_tokens/1/content", "<|end|>", {"added_tokens 1", "already"});
  refused_with("/added_tokens/1/content", "ab", {"added_tokens 1", "already"});
  refused_with("/added_tokens", 3, {"added_tokens"});
  refused_with("/pre_tokenizer/pretokenizers/0/pattern/Regex", "(", {"(", "cannot be used"});
  refused_with("/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\p{Nonsense}", {"cannot be used"});
  refused_with("/pre_tokenizer/pretokenizers", json::object(), {"pretokenizers is no list"});
  check_refused(Exit::environment, {"/no/such.json"}, [] { read_tokenizer_file("/no/such.json"); });
}

BOOST_AUTO_TEST_CASE(expressions_that_mean_other_things_elsewhere_are_refused) {
  for (const char* part : {"\\w", "\\b", "\\B", "\\h", "\\R", "\\1", "\\K", "\\A", "\\pL", "\\xE9"})
    expression_refused(std::string("a") + part, part);
  expression_refused("[a[b]]", "[b");
  expression_refused("[a&&b]", "&&");
  expression_refused("[]a]", "[]");
  expression_refused("[ab", "[ab");
  expression_refused("(?i)a", "(?i)");
  expression_refused("(?<name>a)", "(?<n");
  expression_refused("(*UCP)a", "(*UC");
  expression_refused("a{2}?", "{2}?");
  expression_refused("a{1,3}+", "{1,3}+");
  expression_refused("a{,3}", "{,3}");
  expression_refused("a*", "no characters");
  expression_refused("a|", "no characters");
  BOOST_TEST(translate_expression(R"(\s[\S]\d\u00e9\v)", "t").find(R"([\x{9}-\x{D})") == 0u);
  BOOST_TEST(translate_expression(R"((?i:'s)|[^\r\n/]?\p{L}+(?!x){1,3})", "t") ==
             R"((?i:'s)|[^\r\n/]?\p{L}+(?!x){1,3})");
}

BOOST_AUTO_TEST_CASE(a_frame_round_texts_is_read) {
  json file = small_tokenizer({}, {"<s>", "</s>"});
  const json special = [](const char* name) {
    return json{{"SpecialToken", {{"id", name}, {"type_id", 0}}}};
  }("<s>");
  const json end = {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}};
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  json frame = {{"type", "TemplateProcessing"},
                {"single", {special, text, end}},
                {"pair", json::array()},
                {"special_tokens",
                 {{"<s>", {{"id", "<s>"}, {"ids", {256}}}}, {"</s>", {{"id", "</s>"}, {"ids", {257}}}}}}};
  file["post_processor"] = {{"type", "Sequence"}, {"processors", {{{"type", "ByteLevel"}}, frame}}};
  const TokenizerFile read = parse_tokenizer(file.dump(), "t.json");
  BOOST_TEST((read.before == std::vector<std::int32_t>{256}));
  BOOST_TEST((read.after == std::vector<std::int32_t>{257}));
  frame["special_tokens"]["</s>"]["ids"] = {258};
  file["post_processor"] = frame;
  refused(file.dump(), {"no token's id"});
  frame["single"] = {text, text};
  file["post_processor"] = frame;
  refused(file.dump(), {"twice"});
  frame["single"] = {special};
  file["post_processor"] = frame;
  refused(file.dump(), {"without the text"});
}

BOOST_AUTO_TEST_SUITE_END()
