// config.json of published models (their sizes give the published counts), and everything that is refused.
#include "config/model_config.h"
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include "config/run_config.h"
#include "support/data.h"
#include "support/refusal.h"

using namespace annulus;
using annulus::test::check_refused;
using nlohmann::ordered_json;

namespace {

ordered_json qwen3(std::int64_t C = 4096, std::int64_t F = 12288, std::int64_t L = 36, std::int64_t H = 32,
                   bool tied = false) {
  return {{"architectures", {"Qwen3ForCausalLM"}},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"bos_token_id", 151643},
          {"eos_token_id", 151645},
          {"head_dim", 128},
          {"hidden_act", "silu"},
          {"hidden_size", C},
          {"initializer_range", 0.02},
          {"intermediate_size", F},
          {"max_position_embeddings", 40960},
          {"max_window_layers", L},
          {"model_type", "qwen3"},
          {"num_attention_heads", H},
          {"num_hidden_layers", L},
          {"num_key_value_heads", 8},
          {"rms_norm_eps", 1e-6},
          {"rope_scaling", nullptr},
          {"rope_theta", 1000000},
          {"sliding_window", nullptr},
          {"tie_word_embeddings", tied},
          {"torch_dtype", "bfloat16"},
          {"use_sliding_window", false},
          {"vocab_size", 151936}};
}

ordered_json qwen3_moe(std::int64_t C, std::int64_t Fe, std::int64_t L, std::int64_t G) {
  ordered_json j = qwen3(C, C == 2048 ? 6144 : 12288, L, C == 2048 ? 32 : 64);
  j["architectures"] = {"Qwen3MoeForCausalLM"};
  j["model_type"] = "qwen3_moe";
  j["num_key_value_heads"] = G;
  j["num_experts"] = 128;
  j["num_experts_per_tok"] = 8;
  j["moe_intermediate_size"] = Fe;
  j["norm_topk_prob"] = true;
  j["router_aux_loss_coef"] = 0.001;
  j["decoder_sparse_step"] = 1;
  j["mlp_only_layers"] = ordered_json::array();
  j["output_router_logits"] = false;
  return j;
}

ordered_json llama(std::int64_t C, std::int64_t F, std::int64_t L, std::int64_t H, bool tied,
                   std::int64_t D = 0) {
  ordered_json j = {{"architectures", {"LlamaForCausalLM"}},
                    {"attention_bias", false},
                    {"bos_token_id", 128000},
                    {"eos_token_id", {128001, 128008, 128009}},
                    {"hidden_act", "silu"},
                    {"hidden_size", C},
                    {"intermediate_size", F},
                    {"max_position_embeddings", 131072},
                    {"mlp_bias", false},
                    {"model_type", "llama"},
                    {"num_attention_heads", H},
                    {"num_hidden_layers", L},
                    {"num_key_value_heads", 8},
                    {"pretraining_tp", 1},
                    {"rms_norm_eps", 1e-5},
                    {"rope_scaling",
                     {{"factor", 8.0},
                      {"low_freq_factor", 1.0},
                      {"high_freq_factor", 4.0},
                      {"original_max_position_embeddings", 8192},
                      {"rope_type", "llama3"}}},
                    {"rope_theta", 500000.0},
                    {"tie_word_embeddings", tied},
                    {"vocab_size", 128256}};
  if (D != 0) j["head_dim"] = D;
  return j;
}

ModelConfig parse(const ordered_json& j) {
  return parse_model_config(j.dump(), "tiny/config.json");
}

void refused(const ordered_json& j, std::vector<std::string> parts) {
  parts.push_back("tiny/config.json");
  check_refused(Exit::input, parts, [&] { parse(j); });
}

ordered_json with(ordered_json j, const std::string& key, const ordered_json& value) {
  j[key] = value;
  return j;
}
ordered_json without(ordered_json j, const std::string& key) {
  j.erase(key);
  return j;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(config)

BOOST_AUTO_TEST_CASE(published_parameter_counts) {
  BOOST_TEST(parse(qwen3(1024, 3072, 28, 16, true)).parameters() == 596049920);
  BOOST_TEST(parse(qwen3(2048, 6144, 28, 16, true)).parameters() == 1720574976);
  BOOST_TEST(parse(qwen3(2560, 9728, 36, 32, true)).parameters() == 4022468096);
  BOOST_TEST(parse(qwen3(4096, 12288, 36, 32)).parameters() == 8190735360);
  BOOST_TEST(parse(qwen3(5120, 17408, 40, 40)).parameters() == 14768307200);
  BOOST_TEST(parse(qwen3(5120, 25600, 64, 64)).parameters() == 32762123264);
  BOOST_TEST(parse(llama(2048, 8192, 16, 32, true, 64)).parameters() == 1235814400);
  BOOST_TEST(parse(llama(3072, 8192, 28, 24, true)).parameters() == 3212749824);
  BOOST_TEST(parse(llama(4096, 14336, 32, 32, false)).parameters() == 8030261248);
  BOOST_TEST(parse(llama(8192, 28672, 80, 64, false)).parameters() == 70553706496);
  BOOST_TEST(parse(llama(16384, 53248, 126, 128, false)).parameters() == 405853388800);
}

BOOST_AUTO_TEST_CASE(qwen3_as_published) {
  const ModelConfig c = parse(qwen3());
  BOOST_TEST(c.model_type == "qwen3");
  BOOST_TEST(
      (c.C == 4096 && c.F == 12288 && c.V == 151936 && c.L == 36 && c.H == 32 && c.G == 8 && c.D == 128));
  BOOST_TEST((c.qk_norm && !c.qkv_bias && !c.o_bias && !c.mlp_bias && !c.tied));
  BOOST_TEST(c.norm_eps == 1e-6);
  BOOST_TEST(c.rope.type == "default");
  BOOST_TEST(c.rope.theta == 1e6);
  BOOST_TEST(c.max_positions == 40960);
  BOOST_TEST(c.dtype == "bfloat16");
  BOOST_TEST(c.bos == 151643);
  BOOST_TEST((c.eos == std::vector<std::int64_t>{151645}));
  BOOST_TEST((c.distinct_windows() == std::vector<std::int64_t>{0}));
  BOOST_TEST(c.json == qwen3().dump());
}

BOOST_AUTO_TEST_CASE(llama_as_published) {
  const ModelConfig c = parse(llama(3072, 8192, 28, 24, true));
  BOOST_TEST((c.D == 128 && c.G == 8 && c.tied && !c.qk_norm));
  BOOST_TEST(c.rope.type == "llama3");
  BOOST_TEST((c.rope.factor == 8 && c.rope.original_positions == 8192));
  BOOST_TEST((c.eos == std::vector<std::int64_t>{128001, 128008, 128009}));
  const ModelConfig biased =
      parse(with(with(llama(48, 80, 3, 6, false), "attention_bias", true), "num_key_value_heads", nullptr));
  BOOST_TEST((biased.G == 6 && biased.D == 8 && biased.qkv_bias && biased.o_bias));
  BOOST_TEST(parse(with(llama(48, 80, 3, 8, false), "mlp_bias", true)).mlp_bias);
}

BOOST_AUTO_TEST_CASE(rope_in_either_place) {
  const ordered_json bare = without(without(qwen3(), "rope_theta"), "rope_scaling");
  const ModelConfig nested =
      parse(with(bare, "rope_parameters", {{"rope_theta", 8e6}, {"rope_type", "default"}}));
  BOOST_TEST(nested.rope.theta == 8e6);
  const ordered_json yarn = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
  const ModelConfig old = parse(with(qwen3(), "rope_scaling", yarn));
  BOOST_TEST((old.rope.type == "yarn" && old.rope.factor == 4 && old.rope.original_positions == 32768));
  BOOST_TEST((old.rope.beta_fast == 32 && old.rope.beta_slow == 1 && old.rope.truncate &&
              old.rope.attention_factor == 0));
  // The explicit factor counts, whatever max_position_embeddings says; the original length falls back on it.
  const ModelConfig f8 =
      parse(with(qwen3(), "rope_scaling",
                 {{"rope_type", "yarn"}, {"factor", 8}, {"attention_factor", 1.0}, {"truncate", false}}));
  BOOST_TEST((f8.rope.factor == 8 && f8.rope.original_positions == 40960 && f8.rope.attention_factor == 1 &&
              !f8.rope.truncate));
  refused(bare, {"rope_theta is missing"});
  refused(with(without(qwen3(), "rope_theta"), "rope_scaling", yarn), {"rope_theta is missing"});
  refused(with(qwen3(), "rope_parameters", {{"rope_theta", 5e6}, {"rope_type", "default"}}),
          {"rope_theta", "twice"});
  refused(with(with(qwen3(), "rope_parameters", yarn), "rope_scaling", {{"type", "default"}}),
          {"rope_parameters", "twice"});
  refused(with(qwen3(), "rope_scaling", {{"type", "linear"}, {"factor", 2}}),
          {"\"linear\"", "default, yarn and llama3"});
  refused(with(qwen3(), "rope_scaling", {{"type", "yarn"}, {"rope_type", "llama3"}, {"factor", 2}}),
          {"rope type", "twice"});
  refused(with(qwen3(), "rope_scaling", {{"type", "yarn"}, {"factor", 2}, {"attn_factor", 1}}),
          {"\"attn_factor\"", "attention_factor"});
  refused(with(qwen3(), "rope_scaling", {{"type", "yarn"}}), {"factor is missing"});
  refused(with(qwen3(), "rope_scaling", {{"type", "yarn"}, {"factor", 0.5}}), {"factor is 0.5"});
  refused(with(qwen3(), "rope_scaling", {{"factor", 2.0}}), {"\"factor\"", "default"});
  refused(with(qwen3(), "rope_scaling",
               {{"rope_type", "llama3"},
                {"factor", 8},
                {"original_max_position_embeddings", 8192},
                {"low_freq_factor", 1}}),
          {"high_freq_factor is missing"});
  refused(with(qwen3(), "rope_scaling",
               {{"rope_type", "llama3"},
                {"factor", 8},
                {"original_max_position_embeddings", 8192},
                {"low_freq_factor", 4},
                {"high_freq_factor", 4}}),
          {"high_freq_factor", "greater"});
  refused(with(qwen3(), "rope_scaling", "yarn"), {"rope_scaling", "object"});
  refused(with(qwen3(), "rope_theta", "1e6"), {"rope_theta", "number"});
  refused(with(qwen3(), "partial_rotary_factor", 0.5), {"partial_rotary_factor"});
}

BOOST_AUTO_TEST_CASE(windows_as_transformers_reads_them) {
  using Windows = std::vector<std::int64_t>;
  const ordered_json small = qwen3(96, 160, 5, 8);
  BOOST_TEST((parse(with(small, "sliding_window", 7)).windows == Windows(5, 0)));  // not used
  const ordered_json used =
      with(with(with(small, "use_sliding_window", true), "sliding_window", 7), "max_window_layers", 3);
  BOOST_TEST((parse(used).windows == Windows{0, 0, 0, 7, 7}));
  BOOST_TEST((parse(used).distinct_windows() == Windows{0, 7}));
  BOOST_TEST((parse(with(used, "max_window_layers", 9)).windows == Windows(5, 0)));
  const char *full = "full_attention", *slid = "sliding_attention";
  BOOST_TEST(
      (parse(with(used, "layer_types", {slid, full, slid, full, full})).windows == Windows{7, 0, 7, 0, 0}));
  BOOST_TEST((parse(with(small, "layer_types", {full, full, full, full, full})).windows == Windows(5, 0)));
  refused(with(small, "layer_types", {slid, full, slid, full, full}), {"layer_types", "use_sliding_window"});
  refused(with(used, "layer_types", {full, full}), {"layer_types", "5 layers"});
  refused(with(used, "layer_types", {full, full, full, full, "linear_attention"}),
          {"entry 4 of layer_types"});
  refused(without(used, "max_window_layers"), {"max_window_layers is missing"});
  refused(without(used, "sliding_window"), {"sliding_window is missing"});
  refused(with(llama(48, 80, 3, 8, false), "sliding_window", 7), {"sliding_window", "llama"});
}

BOOST_AUTO_TEST_CASE(experts_are_read_as_transformers_reads_them) {
  const ordered_json j = qwen3_moe(2048, 768, 48, 4);
  const ModelConfig c = parse(j);
  BOOST_TEST((c.E == 128 && c.K == 8 && c.Fe == 768 && c.F == 6144));
  BOOST_TEST(c.normalize_topk);
  BOOST_TEST(c.aux_coefficient == 0.001);
  BOOST_TEST(c.sparse_layers() == 48);
  BOOST_TEST(c.parameters() == 30'532'122'624);
  BOOST_TEST(parse(qwen3_moe(4096, 1536, 94, 4)).parameters() == 235'093'634'560);
  BOOST_TEST(!parse(without(j, "norm_topk_prob")).normalize_topk);
  BOOST_TEST(parse(without(j, "router_aux_loss_coef")).aux_coefficient == 0.001);
  BOOST_TEST(parse(with(without(j, "num_experts"), "num_local_experts", 16)).E == 16);

  const ModelConfig mixed = parse(with(with(j, "decoder_sparse_step", 3), "mlp_only_layers", {5, 0, 47}));
  for (std::int64_t l = 0; l < 48; ++l) BOOST_TEST(mixed.has_experts(l) == (l % 3 == 2 && l != 5 && l != 47));
  BOOST_TEST(mixed.sparse_layers() == 14);
  using Windows = std::vector<std::int64_t>;
  BOOST_TEST(
      (parse(with(with(j, "use_sliding_window", true), "sliding_window", 9)).windows == Windows(48, 9)));
  BOOST_TEST((parse(j).windows == Windows(48, 0)));
  BOOST_TEST(!parse(qwen3()).has_experts(0));

  refused(with(j, "num_local_experts", 16), {"number of experts", "twice"});
  refused(without(j, "num_experts"), {"num_experts is missing"});
  refused(without(j, "moe_intermediate_size"), {"moe_intermediate_size is missing"});
  refused(with(j, "num_experts_per_tok", 129), {"num_experts_per_tok", "128"});
  refused(with(j, "num_experts_per_tok", 0), {"num_experts_per_tok", "from 1"});
  refused(with(j, "mlp_only_layers", {48}), {"mlp_only_layers", "47"});
  refused(with(j, "mlp_only_layers", 3), {"mlp_only_layers", "47"});
  refused(with(j, "mlp_only_layers", {"a"}), {"mlp_only_layers", "47"});
  refused(with(j, "decoder_sparse_step", 0), {"decoder_sparse_step"});
  refused(with(j, "decoder_sparse_step", 49), {"no layer has experts"});
  refused(with(j, "router_aux_loss_coef", -0.1), {"router_aux_loss_coef"});
  refused(with(j, "n_shared_experts", 1), {"n_shared_experts", "not supported"});
  refused(with(j, "layer_types", {"full_attention"}), {"layer_types", "qwen3_moe"});
}

BOOST_AUTO_TEST_CASE(what_is_not_computed_is_refused_by_name) {
  const ordered_json q = qwen3(), l = llama(48, 80, 3, 8, false);
  refused(with(q, "model_type", "qwen2"), {"qwen2", "qwen3, qwen3_moe and llama are"});
  refused(without(q, "model_type"), {"model_type is missing"});
  for (const char* key : {"quantization_config", "num_experts", "num_local_experts", "n_routed_experts",
                          "final_logit_softcapping"})
    refused(with(q, key, 1), {key, "not supported"});
  refused(with(q, "hidden_act", "gelu"), {"hidden_act", "gelu"});
  refused(with(q, "attention_dropout", 0.1), {"attention_dropout", "not 0"});
  refused(with(q, "architectures", {"Qwen3ForSequenceClassification"}), {"architectures"});
  refused(with(q, "mlp_bias", true), {"mlp_bias", "qwen3"});
  refused(without(q, "head_dim"), {"head_dim is missing"});
  refused(with(q, "head_dim", nullptr), {"head_dim is missing"});
  refused(with(q, "head_dim", 7), {"head_dim", "odd"});
  refused(without(q, "num_key_value_heads"), {"num_key_value_heads is missing"});
  refused(with(q, "num_key_value_heads", 5), {"num_key_value_heads 5 does not divide"});
  refused(with(l, "num_attention_heads", 32), {"head_dim is missing", "48"});
  refused(with(q, "hidden_size", 4096.0), {"hidden_size", "whole number"});
  refused(with(q, "hidden_size", "4096"), {"hidden_size", "whole number"});
  refused(with(q, "hidden_size", true), {"hidden_size", "whole number"});
  refused(with(q, "hidden_size", -1), {"hidden_size", "from 1"});
  refused(with(q, "vocab_size", 18446744073709551615u), {"vocab_size", "from 2"});
  refused(with(q, "num_hidden_layers", 1000000000), {"num_hidden_layers"});
  refused(without(q, "rms_norm_eps"), {"rms_norm_eps is missing"});
  refused(with(q, "tie_word_embeddings", 1), {"tie_word_embeddings", "true or false"});
  refused(with(q, "eos_token_id", 151936), {"eos_token_id"});
  refused(with(q, "eos_token_id", {1, -2}), {"eos_token_id", "151935"});
  refused(with(q, "torch_dtype", "float8_e4m3fn"), {"float8_e4m3fn"});
  refused(with(q, "dtype", "float32"), {"dtype", "twice"});
  BOOST_TEST(parse(with(without(q, "torch_dtype"), "dtype", "float16")).dtype == "float16");
  BOOST_TEST(parse(without(without(q, "torch_dtype"), "eos_token_id")).eos.empty());
}

BOOST_AUTO_TEST_CASE(malformed_files_are_refused_with_their_place) {
  const auto text = [](const std::string& t, std::vector<std::string> parts) {
    parts.push_back("x/config.json");
    check_refused(Exit::input, parts, [&] { parse_model_config(t, "x/config.json"); });
  };
  text("", {"not JSON", "line 1"});
  text("{\n\"model_type\": \"qwen3\",\n}", {"not JSON", "line 3", "byte 25"});
  text("[]", {"object"});
  text("{\"a\":\"\xff\"}", {"not JSON"});
  text("{\"a\":\"\\ud83c\"}", {"not JSON"});
  text("{\"a\":1e999}", {"number"});
  text("{\"model_type\":\"qwen3\",\"model_type\":\"llama\"}", {"model_type", "twice"});
  text(std::string(100000, '['), {"nested deeper than 32"});
  text("{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}", {"nested deeper than 32"});
  text(std::string((std::size_t{16} << 20) + 1, ' '), {"too many"});
}

BOOST_AUTO_TEST_CASE(overriding_the_rope_also_changes_the_exported_json) {
  const auto override_rope = [](ModelConfig& config, const ModelSection& m) {
    const std::string json = with_overrides(config.json, m, "tiny");
    config = parse_model_config(json, "tiny");
  };
  ModelConfig c = parse(qwen3());
  ModelSection m;
  m.path = "tiny";
  const std::string before = c.json;
  override_rope(c, m);
  BOOST_TEST(c.json == before);
  m.rope_type = "yarn";
  m.rope_factor = 32;
  m.rope_original_positions = 32768;
  override_rope(c, m);
  BOOST_TEST((c.rope.type == "yarn" && c.rope.factor == 32 && c.rope.original_positions == 32768 &&
              c.rope.theta == 1e6));
  const ModelConfig again = parse_model_config(c.json, "exported");
  BOOST_TEST((again.rope.type == "yarn" && again.rope.factor == 32 && again.rope.theta == 1e6));
  BOOST_TEST(again.parameters() == c.parameters());
  m = {};
  m.rope_theta = 5e6;
  override_rope(c, m);
  BOOST_TEST((c.rope.theta == 5e6 && c.rope.type == "yarn" && c.rope.factor == 32));
  m = {};
  m.rope_type = "default";
  override_rope(c, m);
  BOOST_TEST((c.rope.type == "default" && c.rope.theta == 5e6));
  ModelConfig nested = parse(with(without(without(qwen3(), "rope_theta"), "rope_scaling"), "rope_parameters",
                                  {{"rope_theta", 8e6}, {"rope_type", "default"}}));
  m = {};
  m.rope_type = "llama3";
  m.rope_factor = 8;
  m.rope_original_positions = 8192;
  override_rope(nested, m);
  BOOST_TEST((nested.rope.type == "llama3" && nested.rope.theta == 8e6 && nested.rope.high_freq_factor == 4));
  BOOST_TEST(ordered_json::parse(nested.json)["rope_parameters"]["rope_theta"] == 8e6);
}

BOOST_AUTO_TEST_CASE(folders_that_transformers_wrote) {
  const std::string oracle = test::test_data("tests/oracle") + "/";
  const auto read = [&](const std::string& name) {
    std::ifstream in(oracle + name + "/model/config.json");
    std::ostringstream text;
    text << in.rdbuf();
    return parse_model_config(text.str(), name);
  };
  const ModelConfig window = read("window");
  BOOST_TEST((window.windows == std::vector<std::int64_t>{7, 0, 7}));
  BOOST_TEST((window.eos.empty() && window.bos == -1 && window.D == 8 && window.C == 31));
  const ModelConfig yarn = read("qwen3_tied_yarn");
  BOOST_TEST(
      (yarn.tied && yarn.rope.type == "yarn" && yarn.rope.factor == 4 && yarn.rope.original_positions == 64));
  const ModelConfig llama3 = read("llama3");
  BOOST_TEST((llama3.rope.type == "llama3" && llama3.qkv_bias && llama3.o_bias && llama3.rope.theta == 1e4));
  for (const char* name : {"qwen3", "qwen3_tied_yarn", "llama3", "llama_tied", "packed", "window"}) {
    BOOST_TEST(read(name).parameters() > 0, name);
    BOOST_TEST(parse_run_config({oracle + name + "/run.ini"}).data.format == "tokens", name);
  }
}

BOOST_AUTO_TEST_SUITE_END()
