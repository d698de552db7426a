// Files to documents: what is read, what is refused, and that the number of ranks does not matter.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <random>
#include "data/compress.h"
#include "data/documents.h"
#include "data/idle_queue.h"
#include "data/small_tokenizer.h"
#include "support/data.h"
#include "support/refusal.h"
#include "support/temp_folder.h"
#include "support/world.h"

using namespace annulus;
using annulus::test::check_refused;
using annulus::test::IdleQueue;
using annulus::test::TempFolder;

namespace {

using Paths = std::vector<std::string>;

ModelConfig model(std::int64_t V = 300, std::vector<std::int64_t> eos = {257}) {
  ModelConfig m;
  m.V = V;
  m.eos = std::move(eos);
  return m;
}

DataSection bytes() {
  DataSection d;
  d.tokenizer = "bytes";
  return d;
}

/// What read_documents() gives, its tokens in memory.
struct Read {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> mask;
  std::vector<std::int64_t> starts;
  std::map<std::string, std::string> source;
};

Read read(Comm& world, const Paths& files, const DataSection& d, const ModelConfig& m,
          const std::string& model_path) {
  const TempFolder beside;
  const Documents got = read_documents(world, files, d, m, model_path, beside.path("out.h5"));
  const auto count = static_cast<std::size_t>(got.supply.tokens);
  Read out{std::vector<std::int32_t>(count), std::vector<std::uint8_t>(count), got.supply.starts, got.source};
  // In pieces: what is read does not depend on where it is cut.
  for (std::int64_t at = 0, step = 1; at < got.supply.tokens; at += step, step = step % 1000000 * 3 + 1) {
    step = std::min(step, got.supply.tokens - at);
    got.supply.ids(at, step, out.ids.data() + at);
    got.supply.mask(at, step, out.mask.data() + at);
  }
  BOOST_TEST(got.supply.largest == (count == 0 ? -1 : *std::max_element(out.ids.begin(), out.ids.end())));
  BOOST_TEST(std::filesystem::is_empty(beside.path("")));
  return out;
}

Read alone(const Paths& files, const DataSection& d, const ModelConfig& m = model()) {
  IdleQueue q;
  const auto self = make_self_comm(q);
  return read(*self, files, d, m, "/no/model");
}

void refused(const Paths& files, const DataSection& d, const std::vector<std::string>& parts,
             Exit code = Exit::input, const ModelConfig& m = model()) {
  check_refused(code, parts, [&] { alone(files, d, m); });
}

/// Documents as text; ids beyond a byte in braces, tokens that are no targets after a '~'. What belongs to a
/// document that began on another rank is the first.
std::vector<std::string> shown(const Read& part) {
  std::vector<std::string> out;
  std::size_t next = 0;
  for (std::size_t at = 0; at < part.ids.size(); ++at) {
    const bool begins = next < part.starts.size() && part.starts[next] == static_cast<std::int64_t>(at);
    if (begins) ++next;
    if (begins || at == 0) out.emplace_back();
    if (part.mask[at] == 0) out.back() += '~';
    if (part.ids[at] < 256)
      out.back() += static_cast<char>(part.ids[at]);
    else
      out.back().append("{").append(std::to_string(part.ids[at])).append("}");
  }
  BOOST_TEST(next == part.starts.size());
  return out;
}

using Shown = std::vector<std::string>;

}  // namespace

BOOST_AUTO_TEST_SUITE(data)

BOOST_AUTO_TEST_CASE(texts_and_files_become_documents) {
  const TempFolder f;
  const std::string rows =
      f.write("a.jsonl", "\xEF\xBB\xBF{\"text\": \"ab\"}\r\n{\"text\": \"\"}\r\n{\"text\": \"c\"}");
  const std::string book = f.write("book.txt", "\xEF\xBB\xBFx\ny\n");
  const Read got = alone({rows, book}, bytes());
  BOOST_TEST((shown(got) == Shown{"~ab{257}", "~c{257}", "~x\ny\n{257}"}));
  BOOST_TEST(got.source.at("documents") == "3");
  BOOST_TEST(got.source.at("tokens") == "10");
  BOOST_TEST(got.source.at("targets") == "7");
  BOOST_TEST(got.source.at("empty_texts") == "1");
  BOOST_TEST(got.source.at("files") == rows + "\n" + book);
  // A first end-of-text id that is a byte, or none, ends nothing.
  BOOST_TEST((shown(alone({book}, bytes(), model(300, {3, 257}))) == Shown{"~x\ny\n"}));
  BOOST_TEST((shown(alone({book}, bytes(), model(256, {257}))) == Shown{"~x\ny\n"}));
  DataSection forced = bytes();
  forced.format = "text";
  BOOST_TEST((shown(alone({rows}, forced)) == Shown{"~ab{257}", "~c{257}"}));
}

BOOST_AUTO_TEST_CASE(texts_are_read_with_a_tokenizer_file) {
  const TempFolder f;
  nlohmann::json file =
      annulus::test::small_tokenizer({{"a", "b"}}, {"<|end|>", "<|start|>"});  // ids 256 to 258
  const std::string path = f.write("tokenizer.json", file.dump());
  const std::string rows = f.write("a.jsonl", "{\"text\": \"abc\"}\n{\"text\": \"a<|end|>\"}\n");
  DataSection d;  // auto
  IdleQueue q;
  const auto self = make_self_comm(q);
  const Read got = read(*self, {rows}, d, model(), f.path(""));
  BOOST_TEST((shown(got) == Shown{"~{256}c{257}", "~a<|end|>{257}"}));  // a control token is text
  BOOST_TEST(got.source.at("tokenizer").find("tokenizer.json of CRC-32 ") == 0u);
  BOOST_TEST(got.source.at("end_of_text") == "257");
  d.tokenizer = path;
  d.allow_special = true;
  BOOST_TEST((shown(alone({rows}, d)) == Shown{"~{256}c{257}", "~a{257}"}));  // ends once
  BOOST_TEST((shown(alone({rows}, d, model(300, {}))) == Shown{"~{256}c", "~a{257}"}));
  BOOST_TEST((shown(alone({rows}, d, model(0, {}))) == Shown{"~{256}c", "~a{257}"}));  // no model
  refused({rows}, d, {"tokenizer.json", "259 ids", "vocabulary of 258"}, Exit::input, model(258));
  refused({f.write("bad.txt", "abc\xff")}, d, {"bad.txt", "byte 3", "UTF-8"});
  // What the file puts round a text.
  const auto special = [](const char* name) {
    return nlohmann::json{{"SpecialToken", {{"id", name}, {"type_id", 0}}}};
  };
  file["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {special("<|start|>"), {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
                            {"special_tokens", {{"<|start|>", {{"ids", {258}}}}}}};
  d.tokenizer = f.write("framed.json", file.dump());
  BOOST_TEST((shown(alone({rows}, d)) == Shown{"~{258}{256}c{257}", "~{258}a{257}"}));
}

BOOST_AUTO_TEST_CASE(rows_of_ids_keep_their_labels) {
  const TempFolder f;
  const std::string rows =
      f.write("a.jsonl",
              "{\"input_ids\": [65, 66, 67]}\n{\"input_ids\": [68, 69, 70], \"labels\": [68, -100, 70]}\n\n");
  BOOST_TEST((shown(alone({rows}, DataSection{})) == Shown{"~ABC", "~D~EF"}));
  DataSection d;
  d.format = "tokens";
  d.max_length = 2;
  const std::string other = f.write("rows.dat", "{\"input_ids\": [65, 66, 67]}");
  const Read cut = alone({other}, d);
  BOOST_TEST((shown(cut) == Shown{"~AB"}));
  BOOST_TEST(cut.source.at("cut_tokens") == "1");
}

BOOST_AUTO_TEST_CASE(take_cut_and_join) {
  const TempFolder f;
  const std::string rows =
      f.write("a.jsonl",
              "{\"text\": \"abc\"}\n{\"text\": \"d\"}\n{\"text\": \"efghi\"}\n{\"text\": \"j\"}\nbroken\n");
  DataSection d = bytes();
  d.take = 2;
  d.max_length = 3;
  const Read two = alone({rows}, d, model(300, {}));
  BOOST_TEST((shown(two) == Shown{"~abc", "~d"}));  // the broken row lies behind
  d.take = 0;
  d.skip_bad = 1;
  const Read all = alone({rows}, d, model(300, {}));
  BOOST_TEST((shown(all) == Shown{"~abc", "~d", "~efg", "~j"}));
  BOOST_TEST(all.source.at("skipped_rows") == "1");
  BOOST_TEST(all.source.at("cut_tokens") == "2");
  d.join = 4;
  d.max_length = 0;
  BOOST_TEST((shown(alone({rows}, d, model(300, {}))) == Shown{"~abcd", "~efghi", "~j"}));
  BOOST_TEST((shown(alone({rows}, d)) == Shown{"~abc{257}", "~d{257}efghi{257}", "~j{257}"}));
  d.max_length = 5;
  d.take = 2;
  const Read cut = alone({rows}, d);
  BOOST_TEST((shown(cut) == Shown{"~abc{257}", "~d{257}efg"}));
  BOOST_TEST(cut.source.at("cut_tokens") == "3");
}

BOOST_AUTO_TEST_CASE(bad_rows_are_named_by_line_and_byte) {
  const TempFolder f;
  const DataSection d = bytes();
  const std::string good = "{\"text\": \"ab\"}\n";  // 15 bytes
  refused({f.write("a.jsonl", good + "\n" + good)}, d, {"a.jsonl line 2 (byte 15)", "blank", "skip_bad"});
  refused({f.write("b.jsonl", good + good + "[]\n")}, d, {"b.jsonl line 3 (byte 30)", "is a list"});
  refused({f.write("c.jsonl", good + "{\"text\": \"\\ud83c\"}\n")}, d,
          {"c.jsonl line 2 (byte 31)", "surrogate"});
  refused({f.write("d.jsonl", good + "{\"text\": \"\xff\"}\n")}, d, {"d.jsonl line 2 (byte 25)", "UTF-8"});
  refused({f.write("e.jsonl", good + "{\"text\": \"a\"} {\"text\": \"b\"}\n")}, d,
          {"e.jsonl line 2 (byte 29)", "first value"});
  refused({f.write("f.jsonl", good + "{\"txt\": \"a\"}\n")}, d,
          {"f.jsonl line 2", "has no text (it has txt)"});
  refused({f.write("g.jsonl", good + "{\"input_ids\": [1]}\n")}, d,
          {"g.jsonl line 2", "has no text (it has input_ids)"});
  refused({f.write("h.jsonl", "{\"input_ids\": [1]}\n{\"input_ids\": [300]}\n")}, d,
          {"h.jsonl line 2", "id 300", "300 ids"});
  refused({f.write("i.jsonl", good + "\n\n")}, d, {"i.jsonl line 2", "blank"});
  refused({f.write("j.jsonl", "\xEF\xBB\xBF[]\n")}, d, {"j.jsonl line 1 (byte 3)", "is a list"});
  refused({f.write("k.jsonl", "{\"input_ids\": [1, 2], \"labels\": [2, -100]}\n")}, d,
          {"k.jsonl line 1", "label 2"});
  DataSection skip = d;
  skip.skip_bad = 1;
  const std::string two = f.write("l.jsonl", good + "[]\n" + good + "[1]\n" + good);
  refused({two}, skip, {"l.jsonl line 4", "data.skip_bad=1"});
  skip.skip_bad = 2;
  BOOST_TEST(alone({two}, skip).starts.size() == 3u);
  BOOST_TEST(alone({f.write("m.jsonl", good + good + "\r\n")}, d).starts.size() == 2u);  // a last blank line
  const std::string bad_first = f.write("n.jsonl", "oops\n{\"input_ids\": [7, 8]}\n");
  BOOST_TEST(alone({bad_first}, skip).starts.size() == 1u);
}

BOOST_AUTO_TEST_CASE(files_that_are_refused) {
  const TempFolder f;
  const DataSection d = bytes();
  refused({f.path("none.txt")}, d, {"none.txt", "does not exist"});
  refused({f.path("")}, d, {"not a regular file"});
  refused({f.write("empty.txt", "")}, d, {"empty.txt", "is empty"});
  refused({f.write("blank.jsonl", "\n")}, d, {"blank.jsonl", "no document"});
  refused({f.write("masked.jsonl", "{\"input_ids\": [1, 2], \"labels\": [1, -100]}\n")}, d,
          {"masked.jsonl", "is a target"});
  refused({f.write("one.jsonl", "{\"input_ids\": [1]}\n")}, d, {"one.jsonl", "is a target"});
  const std::string book = f.write("book.txt", "words");
  refused({book}, d, {"256 ids", "vocabulary of 255"}, Exit::input, model(255));
  refused({book}, DataSection{}, {"/no/model", "no tokenizer.json", "data.tokenizer=bytes"});
  DataSection named;
  named.tokenizer = f.write("tokenizer.json", "{}");
  refused({book}, named, {"tokenizer.json", "has no model"});
  named.tokenizer = f.path("none.json");
  refused({book}, named, {"none.json", "is no file", "data.tokenizer=bytes"});
  DataSection joined = d;
  joined.join = 5;
  refused({f.write("ids.jsonl", "{\"input_ids\": [1, 2]}\n")}, joined, {"data.join", "input_ids"},
          Exit::usage);
  refused({}, d, {"no data file"}, Exit::usage);
}

BOOST_AUTO_TEST_CASE(compressed_files_are_read_as_their_text) {
  const TempFolder f;
  const std::string a = "{\"text\": \"ab\"}\n{\"text\": \"c\"}\n", b = "{\"text\": \"d\"}\n", book = "x\ny\n";
  const Paths files = {f.write("a.jsonl.gz", test::gzipped(a) + test::gzipped(b)),
                       f.write("a.jsonl.zst", test::zstd(a) + test::zstd(b)),
                       f.write("book.txt.gz", test::gzipped(book)), f.write("packed", test::zstd(book))};
  const Shown rows = {"~ab{257}", "~c{257}", "~d{257}"};
  Shown want = rows;
  want.insert(want.end(), rows.begin(), rows.end());
  want.insert(want.end(), 2, "~x\ny\n{257}");
  const Read got = alone(files, bytes());
  BOOST_TEST((shown(got) == want));
  BOOST_TEST(got.source.at("file_bytes") == std::to_string(2 * (a.size() + b.size()) + 2 * book.size()));
  refused({f.write("bad.jsonl.gz", test::gzipped(a + "oops\n"))}, bytes(), {"bad.jsonl.gz line 3 (byte 29)"});
  const std::string whole = test::gzipped(a);
  refused({f.write("cut.jsonl.gz", whole.substr(0, whole.size() - 3))}, bytes(), {"cut.jsonl.gz", "cut off"});
  refused({f.write("named.jsonl.gz", a)}, bytes(), {"named.jsonl.gz", "no gzip file"});
  refused({f.write("named.jsonl.zst", a)}, bytes(), {"named.jsonl.zst", "no zstd file"});
  refused({f.write("nothing.gz", test::gzipped(""))}, bytes(), {"nothing.gz", "is empty"});
}

BOOST_AUTO_TEST_CASE(what_python_converts_is_shown_the_line) {
  const TempFolder f;
  const DataSection d = bytes();
  refused({f.write("a b.parquet", "PAR1")}, d,
          {"parquet format",
           "python3 -c 'import sys; from datasets import load_dataset; load_dataset(\"parquet\", "
           "data_files=sys.argv[1], split=\"train\").to_json(sys.argv[2])' '",
           "a b.parquet' '", "a b.jsonl'"});
  refused({"gone.arrow"}, d, {"arrow format", "load_dataset(\"arrow\"", "gone.arrow gone.jsonl"});
  refused({"someone/some-data"}, d,
          {"does not exist", "data set of the hub", "load_dataset(sys.argv[1]",
           "someone/some-data some-data.jsonl"});
  std::filesystem::create_directory(f.path("saved"));
  f.write("saved/dataset_info.json", "{}");
  refused({f.path("saved")}, d, {"datasets library", "load_from_disk", "saved.jsonl"});
  // A file that is merely missing is no data set.
  for (const char* path : {"data/none.jsonl", "none", "/data/none", "a/b/c", "data/none.txt"})
    check_refused(Exit::input, {"does not exist; correct"}, [&] { alone({path}, d); });
}

BOOST_AUTO_TEST_CASE(rows_of_every_format) {
  const TempFolder f;
  const std::string tokenizer = test::test_data("tests/data/chat/tokenizer.json");
  DataSection d;
  d.tokenizer = tokenizer;
  d.chat = "chatml";
  const ModelConfig m = model(1000, {702});
  const std::string chat =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"
      "\n"
      R"({"messages": [{"role": "user", "content": "nobody answers"}]})"
      "\n";
  const std::string talk =
      R"({"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]})";
  const std::string pair = R"({"prompt": "7", "completion": "8"})";
  const std::string text = R"({"text": "ab"})";
  const std::string masks =
      R"({"input_ids": [5, 6, 7, 8], "assistant_masks": [0, 1, 0, 1], "completion_mask": [0, 1, 1, 0]})"
      "\n"
      R"({"input_ids": [5, 6], "labels": [-100, -100], "assistant_masks": [1, 1], "attention_mask": [1, 1]})"
      "\n";
  const Paths files = {f.write("chat.jsonl", chat), f.write("talk.jsonl", talk), f.write("pair.jsonl", pair),
                       f.write("text.jsonl", text), f.write("masks.jsonl", masks)};
  const Read got = alone(files, d, m);
  BOOST_TEST(got.source.at("documents") == "7");
  BOOST_TEST(got.source.at("without_target") == "2");
  BOOST_TEST(got.source.at("chat") == "chatml");
  BOOST_TEST(describe_tokens(got.source).find("; 2 documents without a target") != std::string::npos);
  const auto targets = [&](const Paths& some, const char* loss_on) {
    DataSection other = d;
    other.loss_on = loss_on;
    return alone(some, other, m).source.at("targets");
  };
  BOOST_TEST(targets({files[4]}, "auto") == "1");  // both masks; labels before masks
  BOOST_TEST(targets({files[4]}, "assistant") == "3");
  BOOST_TEST(targets({files[4]}, "all") == "4");
  BOOST_TEST(targets({files[0]}, "auto") == "3");  // "b", the end and a newline
  BOOST_TEST(targets({files[1]}, "auto") == "3");
  BOOST_TEST(targets({files[2]}, "auto") == "2");  // "8" and the end
  BOOST_TEST(targets({files[2]}, "all") == "2");   // the first token is none
  DataSection completion = d;
  completion.loss_on = "completion";
  refused({files[4]}, completion, {"line 2", "no completion_mask", "data.loss_on=completion"}, Exit::input,
          m);
  refused({files[0]}, completion, {"data.loss_on is completion", "chat.jsonl", "messages"}, Exit::usage, m);
  completion.loss_on = "assistant";
  refused({files[3]}, completion, {"data.loss_on is assistant", "text.jsonl"}, Exit::usage, m);
  DataSection unknown = d;
  unknown.chat = "auto";
  refused({files[0]}, unknown, {"no chat template", "data.chat"}, Exit::input, m);
  // Nobody answers in any row: an error before any training.
  refused({f.write("silent.jsonl", R"({"messages": [{"role": "user", "content": "a"}]})")}, d,
          {"silent.jsonl", "is a target", "roles"}, Exit::input, m);
  refused({f.write("no_role.jsonl", chat + R"({"messages": [{"content": "a"}]})")}, d,
          {"no_role.jsonl line 3", "messages[0] has no role", "data.skip_bad"}, Exit::input, m);
  DataSection skip = d;
  skip.skip_bad = 1;
  BOOST_TEST(alone({f.path("no_role.jsonl")}, skip, m).source.at("skipped_rows") == "1");
}

BOOST_AUTO_TEST_CASE(a_row_of_fifty_megabytes) {
  const TempFolder f;
  std::string text = "{\"text\": \"ab\"}\n{\"text\": \"" + std::string(std::size_t{50} << 20, 'z');
  const std::string path = f.write("long.jsonl", text + "\"}\n[]\n");
  refused({path}, bytes(), {"long.jsonl line 3 (byte 52428828)", "is a list"});
  f.write("long.jsonl", text + "\"}\n");
  const Read got = alone({path}, bytes());
  BOOST_REQUIRE(got.starts.size() == 2u);
  BOOST_TEST(static_cast<std::int64_t>(got.ids.size()) - got.starts[1] == (std::int64_t{50} << 20) + 1);
}

namespace {

/// The parts of all ranks joined equal what one rank alone reads, and so do the facts and the failures.
void check_world() {
  IdleQueue q;
  const auto world = annulus::test::session().world(q);
  std::mt19937_64 random(17);
  for (int round = 0; round < 40; ++round) {
    std::string name;
    Paths files;
    const TempFolder f;  // rank 0's is used
    if (world->rank() == 0) name = f.path("");
    world->broadcast(name, 0);
    DataSection d = bytes();
    d.join = round % 5 == 1 ? 20 : round % 5 == 2 ? 200 : 0;
    d.take = round % 3 == 1 ? 4 : 0;
    d.max_length = round % 4 == 3 ? 9 : 0;
    d.skip_bad = round % 7;
    if (round % 4 == 1) {
      d.tokenizer = name + "tokenizer.json";
      const auto file = annulus::test::small_tokenizer({{"a", "a"}, {"aa", "aa"}, {" ", "b"}});
      if (world->rank() == 0) f.write("tokenizer.json", file.dump());
    }
    for (int k = 0; k < 4; ++k) {
      std::string text;
      const bool rows = random() % 4 != 0;
      for (std::uint64_t n = 1 + random() % 12; n > 0; --n) {
        const std::string word(random() % 40, static_cast<char>('a' + random() % 26));
        text += !rows                ? word + (random() % 3 == 0 ? "!" : "\n")
                : random() % 12 == 0 ? "broken\n"
                                     : "{\"text\": \"" + word + "\"}\r\n";
      }
      const bool packed = random() % 3 == 0;
      const std::string file = std::to_string(k) + (rows ? ".jsonl" : ".txt") + (packed ? ".zst" : "");
      files.push_back(name + file);
      if (world->rank() == 0) f.write(file, packed ? test::zstd(text) : text);
    }
    world->barrier();
    std::string want_error, got_error;
    Read want, got;
    try {
      want = alone(files, d);
    } catch (const Error& e) {
      want_error = e.what();
    }
    try {
      got = read(*world, files, d, model(), "/no/model");
    } catch (const Error& e) {
      got_error = e.what();
      BOOST_TEST(e.everywhere);
    }
    BOOST_TEST(got_error == want_error);
    // A document that begins here has a mark; one that another rank began goes on without.
    std::string mine, expected, all;
    const std::vector<std::string> here = shown(got);
    for (std::size_t i = 0; i < here.size(); ++i) {
      const bool goes_on = i == 0 && (got.starts.empty() || got.starts[0] != 0);
      mine += (goes_on ? "" : "\n") + here[i];
    }
    for (const std::string& theirs : world->all_gather(mine)) all += theirs;
    for (const std::string& document : shown(want)) expected += "\n" + document;
    BOOST_TEST(all == expected);
    BOOST_TEST((got.source == want.source));
    world->barrier();
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(two_ranks_read_what_one_reads, *boost::unit_test::label("ranks2")) {
  check_world();
}
BOOST_AUTO_TEST_CASE(three_ranks_read_what_one_reads, *boost::unit_test::label("ranks3")) {
  check_world();
}
BOOST_AUTO_TEST_CASE(four_ranks_read_what_one_reads, *boost::unit_test::label("ranks4")) {
  check_world();
}

BOOST_AUTO_TEST_SUITE_END()
