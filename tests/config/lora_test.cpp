#include "config/lora.h"
#include <boost/test/unit_test.hpp>
#include <cmath>
#include "support/refusal.h"

using namespace annulus;
using namespace annulus::test;

namespace {

ModelConfig model_of(std::vector<std::uint8_t> sparse) {
  ModelConfig c;
  c.L = 3;
  c.E = sparse.empty() ? 0 : 6;
  c.sparse = std::move(sparse);
  return c;
}

const ModelConfig dense = model_of({}), mixed = model_of({1, 0, 1}), sparse = model_of({1, 1, 1});

}  // namespace

BOOST_AUTO_TEST_SUITE(config)

BOOST_AUTO_TEST_CASE(what_is_not_given_is_as_peft_has_it) {
  const LoraConfig c = lora_config({.rank = 3}, dense);
  BOOST_TEST(c.alpha == 8);
  BOOST_TEST(c.scale() == 8.0 / 3);
  BOOST_TEST((c.targets == std::vector<Target>{Target::q, Target::v}));
  BOOST_TEST(lora_config({.rank = 9, .alpha = 5, .rslora = true}, dense).scale() == 5.0 / 3);
  BOOST_TEST(lora_config({}, dense).targets.empty());
}

BOOST_AUTO_TEST_CASE(targets_have_long_and_short_names_and_come_in_the_models_order) {
  const LoraConfig c = lora_config({.rank = 1, .targets = {"down", "k_proj", "k", "o"}}, dense);
  BOOST_TEST((c.targets == std::vector<Target>{Target::k, Target::o, Target::down}));
  BOOST_TEST(lora_config({.rank = 1, .targets = {"all-linear"}}, dense).targets.size() == 7u);
  BOOST_TEST(describe(c) == "rank 1, scale 8, on k_proj, o_proj, down_proj");
  check_refused(Exit::usage, {"lora.targets", "lm_head", "nearest is"}, [] {
    lora_config({.rank = 1, .targets = {"q_proj", "lm_head"}}, dense);
  });
  check_refused(Exit::usage, {"up_porj", "nearest is up_proj"},
                [] { lora_config({.rank = 1, .targets = {"up_porj"}}, dense); });
  check_refused(Exit::usage, {"all_linear", "nearest is all-linear"},
                [] { lora_config({.rank = 1, .targets = {"all_linear"}}, dense); });
}

BOOST_AUTO_TEST_CASE(experts_are_targets_where_a_layer_has_some) {
  using T = Target;
  const auto targets = [](const std::vector<std::string>& given, const ModelConfig& model) {
    return lora_config({.rank = 2, .targets = given}, model).targets;
  };
  const std::vector<T> stacks{T::experts_gate_up, T::experts_down};
  BOOST_TEST((targets({"experts"}, mixed) == stacks));
  BOOST_TEST((targets({"mlp.experts.down_proj", "mlp.experts.gate_up_proj"}, sparse) == stacks));
  BOOST_TEST((targets({"all-linear"}, sparse) == std::vector{T::q, T::k, T::v, T::o, stacks[0], stacks[1]}));
  BOOST_TEST(targets({"all-linear"}, mixed).size() == std::size(kTargets));
  BOOST_TEST((targets({"gate_proj"}, mixed) == std::vector{T::gate}));
  check_refused(Exit::usage, {"lora.targets", "gate_proj", "mlp.experts.gate_up_proj"}, [&] {
    targets({"q", "gate_proj"}, sparse);
  });
  check_refused(Exit::usage, {"lora.targets", "\"experts\"", "no experts"},
                [&] { targets({"experts"}, dense); });
  check_refused(Exit::usage, {"mlp.expert.down_proj", "nearest is mlp.experts.down_proj"},
                [&] { targets({"mlp.expert.down_proj"}, sparse); });
  const LoraConfig both = lora_config({.rank = 2, .targets = {"experts", "q"}}, mixed);
  BOOST_TEST(adapter_module(both, T::experts_gate_up) == "mlp.experts.base_layer");
  BOOST_TEST(adapter_module(both, T::experts_down) == "mlp.experts");
  const LoraConfig one = lora_config({.rank = 2, .targets = {"mlp.experts.gate_up_proj"}}, mixed);
  BOOST_TEST(adapter_module(one, T::experts_gate_up) == "mlp.experts");
  BOOST_TEST(adapter_module(one, T::gate) == "mlp.gate_proj");
}

BOOST_AUTO_TEST_CASE(gate_and_up_of_experts_may_be_named_apart) {
  using T = Target;
  const std::string gate = "mlp.experts.gate_proj", up = "mlp.experts.up_proj";
  const LoraConfig c =
      lora_config({.rank = 3, .alpha = 5, .targets = {up, "q", gate}, .rslora = true}, sparse);
  BOOST_TEST((c.targets == std::vector{T::q, T::experts_gate_up}));
  BOOST_TEST((c.target_names() == std::vector<std::string>{"q_proj", gate, up}));
  BOOST_TEST(c.rank_of(T::experts_gate_up) == 6);
  BOOST_TEST(c.rank_of(T::q) == 3);
  BOOST_TEST(std::abs(c.scale_of(T::experts_gate_up) - 10 / std::sqrt(6.0)) <= 1e-15);
  BOOST_TEST(c.scale() == 5 / std::sqrt(3.0));
  const LoraConfig plain = lora_config({.rank = 3, .alpha = 5, .targets = {gate, up}}, mixed);
  BOOST_TEST(plain.scale_of(T::experts_gate_up) == plain.scale());
  const auto refused = [&](std::vector<std::string> parts, std::vector<std::string> given) {
    check_refused(Exit::usage, parts, [&] { lora_config({.rank = 3, .targets = given}, mixed); });
  };
  refused({gate, "without", up, "give both"}, {"q", gate});
  refused({up, "without", gate}, {up});
  refused({gate, "mlp.experts.gate_up_proj", "one of them"}, {gate, up, "experts"});
}

BOOST_AUTO_TEST_SUITE_END()
