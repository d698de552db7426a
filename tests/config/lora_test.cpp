#include "config/lora.h"
#include <boost/test/unit_test.hpp>
#include "support/refusal.h"

using namespace annulus;
using namespace annulus::test;

BOOST_AUTO_TEST_SUITE(config)

BOOST_AUTO_TEST_CASE(what_is_not_given_is_as_peft_has_it) {
  const LoraConfig c = lora_config({.rank = 3});
  BOOST_TEST(c.alpha == 8);
  BOOST_TEST(c.scale() == 8.0 / 3);
  BOOST_TEST((c.targets == std::vector<Target>{Target::q, Target::v}));
  BOOST_TEST(lora_config({.rank = 9, .alpha = 5, .rslora = true}).scale() == 5.0 / 3);
  BOOST_TEST(lora_config({}).targets.empty());
}

BOOST_AUTO_TEST_CASE(targets_have_long_and_short_names_and_come_in_the_models_order) {
  const LoraConfig c = lora_config({.rank = 1, .targets = {"down", "k_proj", "k", "o"}});
  BOOST_TEST((c.targets == std::vector<Target>{Target::k, Target::o, Target::down}));
  BOOST_TEST(lora_config({.rank = 1, .targets = {"all-linear"}}).targets.size() == std::size(kTargets));
  BOOST_TEST(describe(c) == "rank 1, scale 8, on k_proj, o_proj, down_proj");
  check_refused(Exit::usage, {"lora.targets", "lm_head", "nearest is"}, [] {
    lora_config({.rank = 1, .targets = {"q_proj", "lm_head"}});
  });
  check_refused(Exit::usage, {"up_porj", "nearest is up_proj"},
                [] { lora_config({.rank = 1, .targets = {"up_porj"}}); });
  check_refused(Exit::usage, {"all_linear", "nearest is all-linear"},
                [] { lora_config({.rank = 1, .targets = {"all_linear"}}); });
}

BOOST_AUTO_TEST_SUITE_END()
