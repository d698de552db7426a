// Damaged input of every kind ends in a result or in a sentence, never in a crash or another kind of failure.
// Seeds are fixed; a case goes on for its budget of seconds.
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <random>
#include "core/check.h"
#include "data/compress.h"
#include "data/documents.h"
#include "data/idle_queue.h"
#include "data/row.h"
#include "data/small_tokenizer.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/unicode.h"
#include "support/data.h"
#include "support/temp_folder.h"

using namespace annulus;
using annulus::test::IdleQueue;
using annulus::test::small_tokenizer;
using annulus::test::TempFolder;

namespace {

constexpr std::chrono::seconds kBudget{15};
using Random = std::mt19937_64;

/// Runs `round` with ever new numbers until the budget is used; returns how often.
template <class Round>
int for_the_budget(std::uint64_t seed, Round round) {
  Random random(seed);
  const auto start = std::chrono::steady_clock::now();
  int rounds = 0;
  for (; rounds < 100 || std::chrono::steady_clock::now() - start < kBudget; ++rounds) round(random);
  return rounds;
}

std::size_t below(Random& random, std::size_t most) {
  return most == 0 ? 0 : static_cast<std::size_t>(random() % most);
}

/// A few small changes: bytes flipped, cut out, doubled, moved, replaced by awkward pieces.
std::string damaged(std::string text, Random& random) {
  static const std::string kPieces[] = {"\"",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ":",
                                        "\\",
                                        "\\u",
                                        "\\ud83c",
                                        "\n",
                                        "\r\n",
                                        "-1",
                                        "1e9",
                                        "0.5",
                                        "null",
                                        "true",
                                        "9999999999999999999",
                                        "",
                                        "(",
                                        "*",
                                        "+",
                                        "{2,",
                                        "(?=a)",
                                        "\\p{L}",
                                        "\xff",
                                        "\xc3",
                                        "\xed\xa0\x80",
                                        std::string(1, '\0'),
                                        "\xef\xbb\xbf"};
  for (std::size_t n = 1 + below(random, 4); n > 0 && !text.empty(); --n) {
    const std::size_t at = below(random, text.size()), length = below(random, 20);
    switch (random() % 6) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(below(random, text.size()), length));
        break;
      case 3:
        text.insert(at, kPieces[below(random, std::size(kPieces))]);
        break;
      case 4:
        text.replace(at, 1, kPieces[below(random, std::size(kPieces))]);
        break;
      default:
        text.resize(random() % 8 == 0 ? at : text.size());
        break;
    }
  }
  return text;
}

/// An Error must be the user's to mend, and one line.
void check_sentence(const Error& e) {
  const std::string text = e.what();
  BOOST_TEST((e.code == Exit::input || e.code == Exit::usage), text);
  BOOST_TEST(text.find('\n') == std::string::npos, text);
}

/// Reads a damaged file, with settings, of which `make` gives ever new ones: some are read and some refused.
template <class Make>
void read_damaged(std::uint64_t seed, std::int64_t vocabulary, std::int32_t end, Make make) {
  const TempFolder f;
  IdleQueue q;
  const auto self = make_self_comm(q);
  ModelConfig model;
  model.V = vocabulary;
  model.eos = {end};
  int read = 0;
  const int rounds = for_the_budget(seed, [&](Random& random) {
    DataSection d;
    const std::string path = make(random, f, d);
    try {
      const Documents got = read_documents(*self, {path}, d, model, "/no/model", f.path("out.h5"));
      BOOST_TEST(got.supply.tokens > 0);
      ++read;
    } catch (const Error& e) {
      check_sentence(e);
    }
  });
  BOOST_TEST(read > rounds / 50);
  BOOST_TEST(read < rounds);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data)

BOOST_AUTO_TEST_CASE(damaged_rows, *boost::unit_test::label("slow")) {
  const std::string rows =
      "{\"text\": \"caf\u00e9 \\u00e9\\ud83c\\udf37 x\", \"n\": [1, {\"a\": null}]}\n{\"text\": \"\"}\r\n"
      "{\"input_ids\": [1, 2, 300], \"labels\": [1, -100, 300]}\n{\"text\": \"b\"}";
  const nlohmann::json file = small_tokenizer({{"a", "f"}}, {"<|end|>"});
  read_damaged(11, 400, 257, [&](Random& random, const TempFolder& f, DataSection& d) {
    d.tokenizer = random() % 2 == 0 ? "bytes" : f.write("tokenizer.json", file.dump());
    d.format = random() % 2 == 0 ? "text" : "auto";
    d.skip_bad = static_cast<std::int64_t>(random() % 3);
    d.max_length = static_cast<std::int64_t>(random() % 4);
    d.join = random() % 4 == 0 ? 3 : 0;
    return f.write(random() % 8 == 0 ? "a.txt" : "a.jsonl", damaged(rows, random));
  });
}

BOOST_AUTO_TEST_CASE(damaged_conversations, *boost::unit_test::label("slow")) {
  const std::string rows =
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "caf\u00e9 <|im_end|>"}, )"
      R"({"role": "assistant", "content": null, "reasoning_content": "r", "tool_calls": [{"function": {"name": "f", )"
      R"("arguments": {"a": [1.5, {"b": null}], "c": "\ud83c\udf37"}}}]}, {"role": "tool", "content": "1"}, )"
      R"({"role": "assistant", "content": "<think>\nx</think>\n\ny"}], "tools": [{"name": "f"}]})"
      "\n"
      R"({"messages": [{"from": "human", "value": "a"}, {"from": "gpt", "value": ""}], "tools": null})"
      "\n";
  const std::string pairs =
      R"({"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]})"
      "\n"
      R"({"prompt": "a", "completion": "b"})"
      "\n";
  const std::string masks = R"({"input_ids": [1, 2], "completion_mask": [0, 1], "assistant_masks": [1, 1]})"
                            "\n";
  read_damaged(14, 1000, 702, [&](Random& random, const TempFolder& f, DataSection& d) {
    d.tokenizer = test::test_data("tests/data/chat/tokenizer.json");
    static const char* kChats[] = {"chatml", "qwen3", "qwen3-instruct", "qwen2.5", "llama3", "llama3.1"};
    d.chat = kChats[below(random, std::size(kChats))];
    d.loss_on = random() % 4 == 0 ? "all" : "auto";
    d.allow_special = random() % 4 == 0;
    d.skip_bad = static_cast<std::int64_t>(random() % 3);
    d.max_length = static_cast<std::int64_t>(random() % 50);
    // Chat rows mostly; compressed ones are damaged before or after they are compressed.
    const auto which = random() % 8;
    const std::string& whole = which == 0 ? pairs : which == 1 ? masks : rows;
    std::string bytes = which == 2   ? damaged(test::zstd(whole), random)
                        : which == 3 ? damaged(test::gzipped(whole), random)
                        : which == 4 ? test::zstd(damaged(whole, random))
                                     : damaged(whole, random);
    return f.write("a.jsonl", bytes);
  });
}

BOOST_AUTO_TEST_CASE(damaged_tokenizer_files, *boost::unit_test::label("slow")) {
  nlohmann::json file = small_tokenizer({{"a", "b"}, {"ab", "c"}}, {"<|end|>", "<x>"});
  file["model"]["merges"][1] = nlohmann::json::array({"ab", "c"});
  file["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {{{"Sequence", {{"id", "A"}}}}, {{"SpecialToken", {{"id", "<x>"}}}}}},
                            {"special_tokens", {{"<x>", {{"ids", {259}}}}}}};
  const std::string whole = file.dump();
  const std::size_t from = whole.find("\"vocab\""), to = whole.find("}", from);
  const std::string text = "abc <|end|> It's 12\u00e9 e\u0301  \r\n\t \u3000x<x>\u0898";
  int read = 0;
  const int rounds = for_the_budget(12, [&](Random& random) {
    // The vocabulary is most of the file and the least of what can go wrong.
    const std::string head = whole.substr(0, from), words = whole.substr(from, to - from),
                      tail = whole.substr(to);
    const auto which = random() % 8;
    const std::string bad = (which < 5 ? damaged(head, random) : head) +
                            (which == 5 ? damaged(words, random) : words) +
                            (which > 5 ? damaged(tail, random) : tail);
    try {
      Tokenizer t(parse_tokenizer(bad, "t.json"), "t.json");
      for (const bool added : {true, false}) {
        std::vector<std::int32_t> ids;
        t.encode(text, added, ids);
        for (const std::int32_t id : ids) BOOST_TEST((id >= 0 && id < t.ids()));
        t.decode(ids);
      }
      ++read;
    } catch (const Error& e) {
      check_sentence(e);
    }
  });
  BOOST_TEST(read > rounds / 50);
  BOOST_TEST(read < rounds);
}

BOOST_AUTO_TEST_CASE(random_bytes_as_text, *boost::unit_test::label("slow")) {
  nlohmann::json file = small_tokenizer({{"a", "b"}}, {"<|end|>"});
  Tokenizer composing(parse_tokenizer(file.dump(), "t.json"), "t.json");
  file["normalizer"] = nullptr;
  Tokenizer plain(parse_tokenizer(file.dump(), "t.json"), "t.json");
  const std::string text =
      "ab \u00e9e\u0301\u0323 \u4f60\u3099\ud55c\u11ab \U0001f600\r\n \u0085\u180e<|end|> 12";
  int valid = 0;
  const int rounds = for_the_budget(13, [&](Random& random) {
    std::string bad = damaged(text, random);
    if (random() % 4 == 0)
      for (char& c : bad) c = static_cast<char>(random());
    // Another judge of what is UTF-8: the JSON library when it writes a text.
    bool good = true;
    try {
      nlohmann::json(bad).dump();
    } catch (const nlohmann::json::type_error&) {
      good = false;
    }
    BOOST_TEST((first_invalid_utf8(bad) < 0) == good);
    if (!good) return;
    ++valid;
    std::vector<std::int32_t> ids;
    plain.encode(bad, random() % 2 == 0, ids);
    BOOST_TEST(plain.decode(ids) == bad);
    ids.clear();
    composing.encode(bad, false, ids);
    std::string once, twice;
    const std::string normal(nfc(bad, once));
    BOOST_TEST(composing.decode(ids) == normal);
    BOOST_TEST(nfc(normal, twice) == normal);
  });
  BOOST_TEST(valid > rounds / 50);
  BOOST_TEST(valid < rounds);
}

BOOST_AUTO_TEST_SUITE_END()
