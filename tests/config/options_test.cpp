// Reading and printing of the run's configuration, with every trap of the option library.
#include <boost/test/unit_test.hpp>
#include <random>
#include <sstream>
#include "config/keys.h"
#include "config/run_config.h"
#include "support/refusal.h"
#include "support/temp_folder.h"

using namespace annulus;
using annulus::test::check_refused;
using annulus::test::TempFolder;

namespace {

using Args = std::vector<std::string>;

void usage(const Args& args, const std::vector<std::string>& parts) {
  check_refused(Exit::usage, parts, [&] { parse_run_config(args); });
}
void usage_ini(const std::string& ini, const std::vector<std::string>& parts) {
  const TempFolder f;
  usage({f.write("run.ini", ini)}, parts);
}
RunConfig from_ini(const std::string& ini, Args flags = {}) {
  const TempFolder f;
  flags.insert(flags.begin(), f.write("run.ini", ini));
  return parse_run_config(flags);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(config)

BOOST_AUTO_TEST_CASE(flags_override_the_file) {
  const RunConfig c = from_ini(
      "\xEF\xBB\xBF; a comment\r\n[train]\r\nsteps = 7 ; seven\r\nrows=3\r\n\n# "
      "another\n[optimizer]\nlr=1e-4",
      {"--train.steps", "9", "--optimizer.clip=0.5"});
  BOOST_TEST(c.train.steps == 9);
  BOOST_TEST(c.train.rows == 3);
  BOOST_TEST(c.optimizer.lr == 1e-4);
  BOOST_TEST(c.optimizer.clip == 0.5);
  BOOST_TEST(c.data.sequence == 1024);
}

BOOST_AUTO_TEST_CASE(any_flag_replaces_the_whole_list) {
  const std::string ini = "[data]\ntrain = a b.txt\ntrain = c.txt\neval = e.txt\n[data]\ntrain = d.txt\n";
  const std::vector<std::string> all{"a b.txt", "c.txt", "d.txt"}, flags{"x", "y"}, eval{"e.txt"};
  BOOST_TEST(from_ini(ini).data.train == all);
  const RunConfig c = from_ini(ini, {"--data.train", "x", "--data.train=y"});
  BOOST_TEST(c.data.train == flags);
  BOOST_TEST(c.data.eval == eval);
}

BOOST_AUTO_TEST_CASE(a_list_flag_does_not_swallow_the_file) {
  const TempFolder f;
  const std::string ini = f.write("run.ini", "[train]\nsteps=5\n");
  const RunConfig c = parse_run_config({"--data.train", "x", ini});
  BOOST_TEST(c.data.train.size() == 1u);
  BOOST_TEST(c.train.steps == 5);
}

BOOST_AUTO_TEST_CASE(numbers_in_every_spelling) {
  const RunConfig c = parse_run_config({"--data.sequence=1M", "--data.take", "1e6", "--train.steps=1_048_576",
                                        "--train.seed", "9007199254740993", "--moe.aux_coefficient", "-1"});
  BOOST_TEST(c.data.sequence == 1048576);
  BOOST_TEST(c.data.take == 1000000);
  BOOST_TEST(c.train.steps == 1048576);
  BOOST_TEST(c.train.seed == 9007199254740993);
  BOOST_TEST(c.moe.aux_coefficient == -1.0);
}

BOOST_AUTO_TEST_CASE(dotted_keys_are_keys) {
  const RunConfig c =
      from_ini("[model]\nrope.type = yarn\nrope.factor=32\n", {"--model.rope.original_positions=32K"});
  BOOST_TEST(c.model.rope_type == "yarn");
  BOOST_TEST(c.model.rope_factor == 32.0);
  BOOST_TEST(c.model.rope_original_positions == 32768);
}

BOOST_AUTO_TEST_CASE(refused_on_the_command_line) {
  usage({"--train.seed", "-1"}, {"train.seed", "\"-1\"", "from 0 to 9223372036854775807"});
  usage({"--train.seed=18446744073709551615"}, {"train.seed", "a whole number"});
  usage({"--optimizer.lr", "nan"}, {"optimizer.lr", "\"nan\"", "a finite number from 0"});
  usage({"--optimizer.lr=inf"}, {"optimizer.lr", "finite"});
  usage({"--optimizer.lr", "-1"}, {"optimizer.lr", "\"-1\""});
  usage({"--data.sequence", "1.5"}, {"data.sequence", "a whole number from 2"});
  usage({"--data.sequence", "1"}, {"data.sequence", "from 2 to 1073741824"});
  usage({"--data.sequence", "2G"}, {"data.sequence", "from 2 to 1073741824"});
  usage({"--data.sequnce", "8"}, {"data.sequnce", "nearest is data.sequence", "command line"});
  usage({"--sequence", "8"}, {"\"sequence\"", "nearest is data.sequence"});
  usage({"--train.sequence", "8"}, {"nearest is data.sequence"});
  usage({"--data.seq", "8"}, {"\"data.seq\"", "is not a known key"});  // no guessing of abbreviations
  usage({"--data.shuffle"}, {"data.shuffle", "has no value", "true or false"});
  usage({"--data.shuffle", "yes"}, {"data.shuffle", "\"yes\"", "true or false"});
  usage({"--model.path", "--train.steps", "4"}, {"--model.path", "has no value"});
  usage({"--train.steps"}, {"--train.steps", "has no value", "a whole number"});
  usage({"--model.path="}, {"model.path", "has no value"});
  usage({"--model.path", "/a#3"}, {"model.path", "/a#3", "contains #"});
  usage({"--model.path", "a;b"}, {"contains ;"});
  usage({"--model.path", "\"a\""}, {"contains \""});
  usage({"--model.path", " a"}, {"begins or ends with a space"});
  usage({"--model.path", "a\nb"}, {"control character"});
  usage({"--data.packing", "BFD"}, {"data.packing", "\"BFD\"", "bfd, bfd_split, wrapped or none"});
  usage({"--train.steps", "1", "--train.steps", "2"}, {"train.steps", "twice"});
  usage({"a.ini", "b.ini"}, {"b.ini", "a.ini", "second file"});
  usage({"-train.steps", "2"}, {"train.steps", "--section.key"});
  usage({"/nowhere/run.ini"}, {"/nowhere/run.ini", "cannot read"});
}

BOOST_AUTO_TEST_CASE(refused_in_a_file_with_its_line) {
  usage_ini("[train]\n\nstep = 3\n", {"train.step", "line 3", "nearest is train.steps"});
  usage_ini("[trian]\nsteps = 3\n", {"[trian]", "line 1", "nearest is [train]"});
  usage_ini("steps = 3\n", {"steps", "line 1", "before any [section]"});
  usage_ini("[train]\nsteps\n", {"\"steps\"", "line 2", "key = value"});
  usage_ini("[train]\nsteps =\n", {"train.steps", "line 2", "empty"});
  usage_ini("[train\nsteps = 1\n", {"line 1", "does not end with ]"});
  usage_ini("[train]\nsteps = 1\nsteps = 2\n", {"train.steps", "line 2", "line 3", "twice"});
  usage_ini("[model]\npath = /a#3\n", {"model.path", "\"/a#3\"", "line 2", "contains #"});
  usage_ini("[model]\npath = 'a'\n", {"model.path", "contains '"});
  usage_ini("[train]\nseed = -1\n", {"train.seed", "line 2"});
  usage_ini("[optimizer]\nbeta2 = 1\n", {"optimizer.beta2", "from 0 to below 1"});
  usage_ini("[optimizer]\neps = 0\n", {"optimizer.eps", "above 0 to 1"});
  usage_ini("[model.rope]\ntype = yarn\n", {"[model.rope]", "nearest is [model]"});
}

BOOST_AUTO_TEST_CASE(a_folder_is_no_file) {
  const TempFolder f;
  usage({f.path("")}, {"cannot read the configuration file"});
}

BOOST_AUTO_TEST_CASE(printing_and_reading_back_is_the_identity) {
  std::mt19937_64 random(11);
  const auto any_text = [&] {
    const std::string letters = "abz/._-= []%$:\\09\xC3\xA9";
    std::string t = "x";
    for (std::uint64_t n = random() % 12; n > 0; --n) t += letters[random() % (letters.size() - 2)];
    return t + "\xC3\xA9";
  };
  const auto word_of = [&](std::string_view words) {
    std::istringstream in{std::string(words)};
    std::vector<std::string> all;
    for (std::string w; in >> w;) all.push_back(w);
    return all[random() % all.size()];
  };
  for (int round = 0; round < 300; ++round) {
    RunConfig c;
    int changed = 0;
    for (const Key& k : keys()) {
      if (random() % 3 == 0) continue;
      const Slot slot = k.at(c);
      if (auto* const* t = std::get_if<std::string*>(&slot))
        **t = k.bounds.words.empty() ? any_text() : word_of(k.bounds.words);
      if (auto* const* n = std::get_if<std::int64_t*>(&slot))
        **n = k.bounds.least + static_cast<std::int64_t>(
                                   random() % static_cast<std::uint64_t>(k.bounds.most - k.bounds.least));
      if (auto* const* v = std::get_if<double*>(&slot))
        **v = k.bounds.low +
              (k.bounds.high - k.bounds.low) * (static_cast<double>(random() % 1000003 + 1) / 1000005.0);
      if (auto* const* b = std::get_if<bool*>(&slot)) **b = random() % 2 == 0;
      if (auto* const* l = std::get_if<std::vector<std::string>*>(&slot))
        for (std::uint64_t n = random() % 4; n > 0; --n) (*l)->push_back(any_text());
      ++changed;
    }
    BOOST_TEST(changed > 0);
    const std::string text = print_config(c);
    const RunConfig again = from_ini(text);
    BOOST_TEST(print_config(again) == text);
    for (const Key& k : keys()) BOOST_TEST(written_values(k, again) == written_values(k, c), k.full());
  }
}

BOOST_AUTO_TEST_CASE(every_field_has_a_key_and_help) {
  // A field without a key would be lost in the printed file. 72 keys; a new one changes this number.
  BOOST_TEST(keys().size() == 72u);
  const std::string help = config_help();
  for (const Key& k : keys()) {
    BOOST_TEST((help.find("--" + k.full()) != std::string::npos), k.full());
    BOOST_TEST(find_key(k.full()) == &k);
    BOOST_TEST(nearest_key(k.full()).full() == k.full());
    RunConfig c;  // the default is allowed
    for (const std::string& v : written_values(k, RunConfig{}))
      BOOST_TEST(read_value(k, v, c) == "", k.full());
  }
}

BOOST_AUTO_TEST_SUITE_END()
