// Adapter folders of others: what is read, and what is refused by name.
#include "io/adapter.h"
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include "support/data.h"
#include "support/refusal.h"
#include "support/temp_folder.h"

using namespace annulus;
using namespace annulus::test;

namespace {

const std::string kFolder = "tests/oracle/lora_bias/adapter";  // written by PEFT

}  // namespace

BOOST_AUTO_TEST_SUITE(io)

BOOST_AUTO_TEST_CASE(an_adapter_of_peft_is_read) {
  const std::string folder = test_data(kFolder);
  BOOST_TEST(is_adapter_folder(folder));
  BOOST_TEST(!is_adapter_folder(folder + "/.."));
  const auto source = open_adapter(folder);
  const LoraConfig c = adapter_of(source->config_json(), source->tensors(), folder);
  BOOST_TEST(c.rank == 4);
  BOOST_TEST(c.scale() == 2.5);
  BOOST_TEST((c.targets == std::vector<Target>{Target::k, Target::o, Target::up, Target::down}));
  BOOST_TEST(source->tensors().size() == 2u * 4u * 2u);
}

BOOST_AUTO_TEST_CASE(what_is_written_has_the_fields_that_peft_writes) {
  const std::string folder = test_data(kFolder);
  const auto source = open_adapter(folder);
  const nlohmann::json theirs = nlohmann::json::parse(source->config_json());
  const LoraConfig c = adapter_of(source->config_json(), source->tensors(), folder);
  const nlohmann::json ours = nlohmann::json::parse(adapter_json(c, "llama3"));
  for (const auto& [key, value] : ours.items()) {
    BOOST_TEST_INFO(key);
    BOOST_REQUIRE(theirs.contains(key));
    if (key == "peft_version") continue;
    if (key != "target_modules") BOOST_TEST(value.dump() == theirs[key].dump());
  }
  BOOST_TEST(adapter_of(ours.dump(), source->tensors(), "ours").alpha == 10);
  BOOST_TEST(adapter_name("model.layers.0.mlp.up_proj.weight") ==
             "base_model.model.model.layers.0.mlp.up_proj");
  BOOST_TEST(adapter_name("model.layers.0.self_attn.q_proj.bias").empty());
}

BOOST_AUTO_TEST_CASE(adapters_of_other_kinds_are_refused_by_field) {
  const auto source = open_adapter(test_data(kFolder));
  const nlohmann::json good = nlohmann::json::parse(source->config_json());
  const auto refused = [&](const std::string& field, const nlohmann::json& value) {
    nlohmann::json bad = good;
    bad[field] = value;
    check_refused(Exit::input, {"there", field}, [&] { adapter_of(bad.dump(), source->tensors(), "there"); });
  };
  refused("peft_type", "IA3");
  refused("use_dora", true);
  refused("lora_bias", true);
  refused("bias", "all");
  refused("rank_pattern", {{"q_proj", 4}});
  refused("modules_to_save", {"lm_head"});
  refused("target_parameters", {"mlp.experts.down_proj"});
  refused("init_lora_weights", "pissa");
  refused("r", 0);
  refused("r", 1.5);
  refused("r", "4");
  refused("lora_alpha", -1);
  refused("lora_alpha", nullptr);
  refused("use_rslora", 1);
  check_refused(Exit::input, {"there", "adapter_config.json"},
                [&] { adapter_of("[1]", source->tensors(), "there"); });
  check_refused(Exit::input, {"there", "lm_head"}, [&] {
    adapter_of(good.dump(), {{"base_model.model.lm_head.lora_A.weight", {4, 4}, "F32"}}, "there");
  });
  check_refused(Exit::input, {"there", "no adapter"}, [&] { adapter_of(good.dump(), {}, "there"); });
  // Unknown fields are other programs' own.
  nlohmann::json more = good;
  more["invented_later"] = {1, 2};
  BOOST_TEST(adapter_of(more.dump(), source->tensors(), "there").rank == 4);

  const TempFolder folder;
  folder.write("adapter_config.json", good.dump());
  check_refused(Exit::input, {"adapter_model.safetensors"}, [&] { open_adapter(folder.path("")); });
}

BOOST_AUTO_TEST_SUITE_END()
