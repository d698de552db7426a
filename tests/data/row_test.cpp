// One JSONL row: strict JSON, and what may stand in it.
#include "data/row.h"
#include <boost/test/unit_test.hpp>

using namespace annulus;

namespace {

void bad(const std::string& line, const std::string& why, std::int64_t byte = 0) {
  try {
    tokens_of_row(parse_row(line), 100, "auto");
    BOOST_ERROR("accepted: " << line);
  } catch (const RowError& e) {
    BOOST_TEST((e.why.find(why) != std::string::npos), e.why << " does not say " << why);
    BOOST_TEST(e.byte == byte, line << ": byte " << e.byte);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data)

BOOST_AUTO_TEST_CASE(rows_that_are_read) {
  BOOST_TEST(
      parse_row(R"({"text": "a\u00e9\n\ud83c\udf37", "other": {"text": [1, {"text": 3}]}})").text.value() ==
      "a\xC3\xA9\n\xF0\x9F\x8C\xB7");  // a pair of surrogates is one character
  const RowTokens plain = tokens_of_row(parse_row(R"( {"input_ids": [1, 2, 99]} )"), 100, "auto");
  BOOST_TEST((plain.ids == std::vector<std::int32_t>{1, 2, 99}));
  BOOST_TEST((plain.mask == std::vector<std::uint8_t>{1, 1, 1}));
  const RowTokens gaps = tokens_of_row(
      parse_row(R"({"labels": [-100, 2, -100, 7], "x": null, "input_ids": [1, 2, 3, 7]})"), 100, "auto");
  BOOST_TEST((gaps.ids == std::vector<std::int32_t>{1, 2, 3, 7}));
  BOOST_TEST((gaps.mask == std::vector<std::uint8_t>{0, 1, 0, 1}));
  BOOST_TEST(parse_row(R"({"messages": [], "tools": 1})").has("messages"));
}

BOOST_AUTO_TEST_CASE(rows_that_are_refused) {
  bad("[]", "is a list");
  bad("[{\"text\": \"a\"}]", "is a list");
  bad("3", "is a number");
  bad("\"a\"", "is a text");
  bad("null", "is null");
  bad("", "not valid JSON");
  bad("{\"text\": \"a\"", "not valid JSON", 12);
  bad("{\"text\": \"a\"}{\"text\": \"b\"}", "after its first value", 13);
  bad("{\"text\": nan}", "not valid JSON", 10);
  bad("{\"text\": \"a\xff\"}", "not valid UTF-8", 11);
  bad("{\"text\": \"\xed\xa0\xbc\"}", "not valid UTF-8", 11);  // a surrogate, encoded
  bad("{\"text\": \"\\ud83c\"}", "surrogate", 16);
  bad("{\"text\": \"\\ud83cx\"}", "surrogate", 16);
  bad("{\"text\": \"\\udf37\"}", "surrogate", 15);
  bad("{\"text\": 5}", "text is a number");
  bad("{\"text\": [\"a\"]}", "text is a list");
  bad("{\"text\": \"a\", \"text\": \"b\"}", "key \"text\" twice");
  bad("{\"input_ids\": \"1 2\"}", "input_ids is a text");
  bad("{\"input_ids\": [1, 2.0]}", "fraction");
  bad("{\"input_ids\": [1, \"2\"]}", "holds a text");
  bad("{\"input_ids\": [1, [2]]}", "holds a list");
  bad("{\"input_ids\": [1, {\"a\": 2}]}", "holds an object");
  bad("{\"input_ids\": [1, null]}", "holds null");
  bad("{\"input_ids\": []}", "empty input_ids");
  bad("{\"input_ids\": [1, -2]}", "id -2 at place 1");
  bad("{\"input_ids\": [100]}", "vocabulary has 100");
  bad("{\"input_ids\": [18446744073709551615]}", "id 9223372036854775807");
  bad("{\"input_ids\": [1e999]}", "64-bit", 19);
  bad("{\"input_ids\": [1, 2], \"labels\": [1]}", "1 labels for 2 input_ids");
  bad("{\"input_ids\": [1, 2], \"labels\": [2, -100]}", "label 2 at place 0");
  bad("{\"input_ids\": [1, 2], \"labels\": [1, -1]}", "label -1 at place 1");
  bad("{\"text\": \"a\"}", "no input_ids");
  bad("{\"a\":" + std::string(70, '[') + std::string(70, ']') + "}", "nested deeper than 64");
  bad("{\"a\":" + std::string(1000000, '['), "nested deeper than 64");
}

BOOST_AUTO_TEST_SUITE_END()
