#include <boost/test/unit_test.hpp>
#include <set>
#include "model/layer_view.h"
#include "model/rig.h"

using namespace annulus;
using namespace annulus::test;

namespace {

ModelConfig shape_of(std::int64_t C, std::int64_t F, std::int64_t L, std::int64_t H, std::int64_t G,
                     std::int64_t D, std::int64_t V, bool qk_norm, bool tied) {
  ModelConfig c;
  c.C = C, c.F = F, c.L = L, c.H = H, c.G = G, c.D = D, c.V = V;
  c.qk_norm = qk_norm;
  c.tied = tied;
  c.windows.assign(static_cast<std::size_t>(L), 0);
  return c;
}

std::int64_t count(const ModelConfig& c) {
  std::int64_t n = 0;
  for (const Unit& unit : make_units(c))
    for (const Parameter& p : unit.parameters) n += p.size();
  return n;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(model)

BOOST_AUTO_TEST_CASE(units_of_published_models_have_their_parameter_counts) {
  BOOST_TEST(count(shape_of(4096, 12288, 36, 32, 8, 128, 151936, true, false)) == 8190735360);  // Qwen3-8B
  BOOST_TEST(count(shape_of(1024, 3072, 28, 16, 8, 128, 151936, true, true)) == 596049920);     // Qwen3-0.6B
  BOOST_TEST(count(shape_of(4096, 14336, 32, 32, 8, 128, 128256, false, false)) ==
             8030261248);                                                                     // Llama-3.1-8B
  BOOST_TEST(count(shape_of(2048, 8192, 16, 32, 8, 64, 128256, false, true)) == 1235814400);  // Llama-3.2-1B
}

BOOST_AUTO_TEST_CASE(unit_names_are_unique_and_ids_count_through) {
  ModelConfig c = tiny_config();
  c.qkv_bias = c.o_bias = c.mlp_bias = true;
  std::set<std::string> names;
  std::uint64_t next = 0;
  const auto units = make_units(c);
  BOOST_TEST(units.size() == std::size_t(c.L + 2));
  for (const Unit& unit : units)
    for (const Parameter& p : unit.parameters) {
      BOOST_TEST(p.id == next++);
      BOOST_TEST(names.insert(p.name).second, p.name);
      const bool matrix = p.shape.size() == 2;
      BOOST_TEST(p.decay == matrix, p.name);
      BOOST_TEST((p.init_std > 0) == matrix, p.name);
      const bool norm = p.name.find("norm") != std::string::npos;
      BOOST_TEST(p.init_value == (norm ? 1.f : 0.f), p.name);
    }
  BOOST_TEST(names.count("model.embed_tokens.weight") == 1u);
  BOOST_TEST(names.count("lm_head.weight") == 1u);
  BOOST_TEST(names.count("model.norm.weight") == 1u);
  for (const char* suffix :
       {"input_layernorm.weight", "post_attention_layernorm.weight", "self_attn.q_proj.weight",
        "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.o_proj.weight",
        "self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias", "self_attn.o_proj.bias",
        "self_attn.q_norm.weight", "self_attn.k_norm.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight",
        "mlp.down_proj.weight", "mlp.gate_proj.bias", "mlp.up_proj.bias", "mlp.down_proj.bias"})
    BOOST_TEST(names.count("model.layers.2." + std::string(suffix)) == 1u, suffix);
  BOOST_TEST(names.size() == 3u + 3u * 18u);
}

BOOST_AUTO_TEST_CASE(joined_matrices_are_views_of_one_piece_of_memory) {
  ModelConfig c = tiny_config();
  c.qkv_bias = c.mlp_bias = true;
  LayerIndex at;
  const Unit unit = make_layer_unit(c, 1, at);
  std::vector<float> memory(static_cast<std::size_t>(unit.size));
  const UnitView flat(unit, make_tensor("unit", memory.data(), DType::f32, {unit.size}));
  const LayerView v = view_layer(flat, at);
  v.qkv.w.expect({(c.H + 2 * c.G) * c.D, c.C});
  v.qkv.bias.expect({(c.H + 2 * c.G) * c.D});
  v.gu.w.expect({2 * c.F, c.C});
  v.gu.bias.expect({2 * c.F});
  v.d.w.expect({c.C, c.F});
  v.o.w.expect({c.C, c.H * c.D});
  BOOST_TEST(!v.o.bias);
  BOOST_TEST(static_cast<bool>(v.d.bias));
  BOOST_TEST(!v.qkv.a);
  BOOST_TEST(v.qkv.w.as<float>() + c.H * c.D * c.C == flat[at.wqkv + 1].as<float>());
  BOOST_TEST(v.gu.w.as<float>() + c.F * c.C == flat[at.wgu + 1].as<float>());
}

BOOST_AUTO_TEST_CASE(adapters_follow_the_model_and_name_the_columns_they_add_to) {
  const ModelConfig c = tiny_config();
  const LoraConfig lora{
      .rank = 3, .alpha = 5, .targets = {Target::k, Target::v, Target::o, Target::up, Target::down}};
  const auto units = make_units(c, lora);
  BOOST_REQUIRE(static_cast<int>(units.size()) == base_units(c) + static_cast<int>(c.L));
  std::set<std::uint64_t> ids;
  for (std::size_t u = 0; u < units.size(); ++u) {
    BOOST_TEST(is_trained(units[u]) == (static_cast<int>(u) >= base_units(c)));
    for (const Parameter& p : units[u].parameters) ids.insert(p.id);
  }
  std::size_t parameters = 0;
  for (const Unit& unit : units) parameters += unit.parameters.size();
  BOOST_TEST(ids.size() == parameters);

  LayerIndex at;
  const Unit unit = make_adapter_unit(c, lora, 1, at);
  BOOST_TEST(units[static_cast<std::size_t>(adapter_unit(c, lora, 1))].parameters[0].name ==
             "base_model.model.model.layers.1.self_attn.k_proj.lora_A.weight");
  BOOST_TEST(unit.parameters.size() == 10u);
  std::vector<float> memory(static_cast<std::size_t>(unit.size));
  const UnitView flat(unit, make_tensor("unit", memory.data(), DType::f32, {unit.size}));
  LayerView v;
  view_adapters(flat, at, v);
  v.qkv.a.expect({2 * 3, c.C});
  BOOST_TEST(v.qkv.column[0] == c.H * c.D);
  BOOST_TEST(v.qkv.column[1] == (c.H + c.G) * c.D);
  v.qkv.b[0].expect({c.G * c.D, 3});
  v.qkv.b[1].expect({c.G * c.D, 3});
  BOOST_TEST(!v.qkv.b[2]);
  v.o.a.expect({3, c.H * c.D});
  v.o.b[0].expect({c.C, 3});
  v.gu.a.expect({3, c.C});
  BOOST_TEST(v.gu.column[0] == c.F);
  v.gu.b[0].expect({c.F, 3});
  v.d.a.expect({3, c.F});
  v.d.b[0].expect({c.C, 3});
}

BOOST_AUTO_TEST_SUITE_END()
