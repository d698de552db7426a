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
  const nlohmann::json ours = nlohmann::json::parse(adapter_json(c, ModelConfig{}, "llama3"));
  for (const auto& [key, value] : ours.items()) {
    BOOST_TEST_INFO(key);
    BOOST_REQUIRE(theirs.contains(key));
    if (key == "peft_version") continue;
    if (key != "target_modules") BOOST_TEST(value.dump() == theirs[key].dump());
  }
  BOOST_TEST(adapter_of(ours.dump(), source->tensors(), "ours").alpha == 10);
  BOOST_TEST(adapter_name(c, "model.layers.0.mlp.up_proj.weight") ==
             "base_model.model.model.layers.0.mlp.up_proj");
  BOOST_TEST(adapter_name(c, "model.layers.0.self_attn.q_proj.bias").empty());
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
  refused("target_parameters", {"mlp.experts.down_proj"});  // which no tensor adapts
  refused("target_parameters", {"model.layers.0.mlp.experts.down_proj"});
  refused("target_parameters", {"mlp.gate.weight"});
  refused("target_parameters", {3});
  refused("target_parameters", "mlp.experts.down_proj");
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

BOOST_AUTO_TEST_CASE(an_adapter_of_experts_is_read_by_target_parameters) {
  using T = Target;
  const auto read = [](const std::string& name) {
    const std::string folder = test_data("tests/oracle/" + name + "/adapter");
    const auto source = open_adapter(folder);
    return adapter_of(source->config_json(), source->tensors(), folder).targets;
  };
  BOOST_TEST((read("lora_moe") == std::vector{T::q, T::experts_gate_up, T::experts_down}));
  BOOST_TEST((read("lora_moe_mixed") == std::vector{T::v, T::gate, T::up, T::down, T::experts_gate_up}));
  BOOST_TEST((read("lora_moe_packed") == std::vector{T::experts_down}));

  const auto source = open_adapter(test_data("tests/oracle/lora_moe/adapter"));
  const nlohmann::json theirs = nlohmann::json::parse(source->config_json());
  const auto shape = [&](const std::string& name) {
    for (const StoredTensor& t : source->tensors())
      if (t.name == "base_model.model.model.layers.1.mlp.experts." + name + ".weight") return t.shape;
    return std::vector<std::int64_t>{};
  };
  using Extents = std::vector<std::int64_t>;
  BOOST_TEST((shape("base_layer.lora_A") == Extents{8, 3, 22}));
  BOOST_TEST((shape("base_layer.lora_B") == Extents{8, 26, 3}));
  BOOST_TEST((shape("lora_A") == Extents{8, 3, 13}));
  BOOST_TEST((shape("lora_B") == Extents{8, 22, 3}));

  // What is written says the same, and dense layers of a model with experts are parameters too.
  const LoraConfig c = adapter_of(theirs.dump(), source->tensors(), "there");
  ModelConfig model;
  model.E = 8;
  const nlohmann::json ours = nlohmann::json::parse(adapter_json(c, model, "moe"));
  BOOST_TEST((ours["target_modules"] == nlohmann::json{"q_proj"}));
  BOOST_TEST(
      (ours["target_parameters"] == nlohmann::json{"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}));
  const LoraConfig dense{.rank = 2, .alpha = 3, .targets = {T::o, T::gate}};
  BOOST_TEST((nlohmann::json::parse(adapter_json(dense, model, "moe"))["target_parameters"] ==
              nlohmann::json{"mlp.gate_proj.weight"}));
  BOOST_TEST((nlohmann::json::parse(adapter_json(dense, {}, "llama3"))["target_modules"] ==
              nlohmann::json{"o_proj", "gate_proj"}));

  // PEFT's shorter names, as it writes them itself; without any nothing says which stack is adapted.
  nlohmann::json other = theirs;
  other["target_parameters"] = {"down_proj", "experts.gate_up_proj"};
  BOOST_TEST((adapter_of(other.dump(), source->tensors(), "there").targets == c.targets));
  other["target_parameters"] = nullptr;
  check_refused(Exit::input, {"there", "mlp.experts", "target_parameters"},
                [&] { adapter_of(other.dump(), source->tensors(), "there"); });
  other = theirs;
  other["peft_version"] = "0.18.1";
  check_refused(Exit::input, {"there", "0.18.1", "0.19"},
                [&] { adapter_of(other.dump(), source->tensors(), "there"); });
}

BOOST_AUTO_TEST_CASE(modules_of_experts_that_peft_joined_are_read_as_such) {
  const std::string folder = test_data("tests/oracle/lora_moe_joined/adapter");
  const auto source = open_adapter(folder);
  const nlohmann::json theirs = nlohmann::json::parse(source->config_json());
  const LoraConfig c = adapter_of(theirs.dump(), source->tensors(), folder);
  BOOST_TEST((c.target_names() == std::vector<std::string>{"o_proj", "mlp.experts.gate_proj",
                                                           "mlp.experts.up_proj", "mlp.experts.down_proj"}));
  const std::string inner = "base_model.model.model.layers.2.mlp.experts.";
  for (const StoredTensor& t : source->tensors()) {
    if (t.name == inner + "base_layer.lora_B.weight")
      BOOST_TEST((t.shape == std::vector<std::int64_t>{4, 26, 6}));
    if (t.name == inner + "lora_B.weight") BOOST_TEST((t.shape == std::vector<std::int64_t>{4, 22, 3}));
  }
  ModelConfig model;
  model.E = 4;
  const nlohmann::json ours = nlohmann::json::parse(adapter_json(c, model, "moe_mixed"));
  BOOST_TEST(ours["rank_pattern"].dump() == theirs["rank_pattern"].dump());
  BOOST_TEST(ours["alpha_pattern"].dump() == theirs["alpha_pattern"].dump());
  BOOST_TEST((adapter_of(ours.dump(), source->tensors(), "ours").target_names() == c.target_names()));
  nlohmann::json other = theirs;
  other["rank_pattern"] = {{".*\\.gate_up_proj", 3}};
  check_refused(Exit::input, {"there", "rank_pattern"},
                [&] { adapter_of(other.dump(), source->tensors(), "there"); });
  other["rank_pattern"] = nlohmann::json::object();
  check_refused(Exit::input, {"there", "alpha_pattern", "the other"},
                [&] { adapter_of(other.dump(), source->tensors(), "there"); });
}

BOOST_AUTO_TEST_SUITE_END()
