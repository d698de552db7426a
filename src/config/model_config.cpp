// config.json of the model families that are computed here. What a family means by its keys stands in one
// table; everything else reads the ModelConfig that comes out.
#include "config/model_config.h"
#include <algorithm>
#include <array>
#include <initializer_list>
#include "config/json_read.h"
#include "config/run_config.h"
#include "core/check.h"

namespace annulus {
namespace {

using nlohmann::ordered_json;

/// How a family reads use_sliding_window and the keys beside it.
enum class Windows : std::uint8_t { none, by_layer, everywhere };

struct Family {
  const char* model_type;
  bool qk_norm;           // RMSNorm on the heads of q and k
  bool mlp_bias_key;      // reads mlp_bias
  bool head_dim_derived;  // head_dim may be absent: C / H
  bool heads_shared;      // num_key_value_heads may be absent: all heads
  Windows windows;        // by_layer: with max_window_layers and layer_types
  bool experts;           // reads num_experts and the keys beside it
};
constexpr std::array<Family, 3> kFamilies{{
    {"qwen3", true, false, false, false, Windows::by_layer, false},
    {"qwen3_moe", true, false, false, false, Windows::everywhere, true},
    {"llama", false, true, true, true, Windows::none, false},
}};

// Bounds that keep every product of sizes far below 2^63.
constexpr std::int64_t kWidth = 1 << 20, kInner = 1 << 24, kVocabulary = 2147483647, kLayers = 1 << 12,
                       kHeads = 1 << 12, kHeadSize = 1 << 12, kPositions = std::int64_t{1} << 40,
                       kExperts = 1 << 16;

const Family& family_of(const JsonObject& o) {
  const std::string type = o.text("model_type");
  std::string known;
  for (const Family& f : kFamilies) {
    if (type == f.model_type) return f;
    const bool last = &f == &kFamilies.back();
    known += (known.empty() ? "" : last ? " and " : ", ") + std::string(f.model_type);
  }
  input_error(o.where() + ": model_type \"" + type + "\" is not known here; " + known + " are");
}

/// Keys that change what is computed in a way that is not computed here, with the values that change nothing.
void refuse_unsupported(const JsonObject& o, const Family& f) {
  const auto refuse = [&](const char* key) {
    if (o.has(key))
      input_error(o.where() + ": " + key +
                  " changes the computation in a way that is not supported for model_type " +
                  o.text("model_type") + "; take a model without it");
  };
  for (const char* key :
       {"quantization_config", "compression_config", "n_routed_experts", "n_shared_experts",
        "shared_expert_intermediate_size", "kv_lora_rank", "q_lora_rank", "attn_logit_softcapping",
        "final_logit_softcapping", "logit_scale", "logits_scaling", "attention_multiplier",
        "embedding_multiplier", "residual_multiplier", "no_rope_layers", "attention_chunk_size",
        "query_pre_attn_scalar"})
    refuse(key);
  if (!f.experts)
    for (const char* key :
         {"num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size"})
      refuse(key);
  for (const char* key : {"attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop"})
    if (o.has(key) && o.number(key, 0, 1) != 0)
      input_error(o.where() + ": " + key + " is not 0; dropout is not supported, set it to 0");
  if (const std::string act = o.text_or("hidden_act", "silu"); act != "silu")
    input_error(o.where() + ": hidden_act \"" + act + "\" is not supported; silu is");
  if (!o.has("architectures")) return;
  const ordered_json& names = o.raw("architectures");
  const auto causal = [](const ordered_json& n) {
    return n.is_string() && n.get<std::string>().find("ForCausalLM") != std::string::npos;
  };
  if (!names.is_array() || (!names.empty() && std::none_of(names.begin(), names.end(), causal)))
    input_error(o.where() +
                ": architectures names no ...ForCausalLM; only causal language models are trained");
}

void only_keys(const JsonObject& o, const std::string& type, std::initializer_list<const char*> known) {
  for (const auto& [key, value] : o.all().items()) {
    if (std::any_of(known.begin(), known.end(), [&, k = key](const char* name) { return k == name; }))
      continue;
    std::string list;
    for (const char* name : known) list += (list.empty() ? "" : ", ") + std::string(name);
    input_error(o.where() + ": the key \"" + key + "\" is not known for rope type " + type + "; known are " +
                list);
  }
}

/// Two places for one thing must agree.
template <class T>
T same(const JsonObject& o, const std::string& what, const T& a, const T& b) {
  if (a != b)
    input_error(o.where() + ": " + what + " is given twice with different values; leave one of them out");
  return a;
}

std::string rope_type(const JsonObject& o) {
  if (o.has("type") && o.has("rope_type"))
    return same(o, "the rope type", o.text("rope_type"), o.text("type"));
  return o.has("type") ? o.text("type") : o.text_or("rope_type", "default");
}

void read_scaling(const JsonObject& s, std::int64_t max_positions, RopeConfig& r) {
  constexpr double kFactor = 1e6;
  r.type = rope_type(s);
  if (s.number_or("partial_rotary_factor", 1.0, 0, 1) != 1.0)
    input_error(s.where() + ": partial_rotary_factor below 1 is not supported for this model type");
  if (r.type == "default") {
    only_keys(s, r.type, {"type", "rope_type", "rope_theta", "partial_rotary_factor"});
    return;
  }
  if (r.type != "yarn" && r.type != "llama3")
    input_error(s.where() + ": rope type \"" + r.type + "\" is not supported; default, yarn and llama3 are");
  r.factor = s.number("factor", 1, kFactor);
  if (r.type == "llama3") {
    only_keys(s, r.type,
              {"type", "rope_type", "rope_theta", "partial_rotary_factor", "factor",
               "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"});
    r.original_positions = s.whole("original_max_position_embeddings", 1, kPositions);
    r.low_freq_factor = s.number("low_freq_factor", 1e-6, kFactor);
    r.high_freq_factor = s.number("high_freq_factor", 1e-6, kFactor);
    if (r.high_freq_factor <= r.low_freq_factor)
      input_error(s.where() + ": high_freq_factor must be greater than low_freq_factor");
    return;
  }
  only_keys(s, r.type,
            {"type", "rope_type", "rope_theta", "partial_rotary_factor", "factor",
             "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale",
             "mscale_all_dim", "truncate"});
  r.original_positions = s.whole_or("original_max_position_embeddings", max_positions, 1, kPositions);
  r.attention_factor = s.number_or("attention_factor", 0, 1e-6, kFactor);
  r.beta_fast = s.number_or("beta_fast", 32, 1e-6, kFactor);
  r.beta_slow = s.number_or("beta_slow", 1, 1e-6, kFactor);
  r.mscale = s.number_or("mscale", 0, 0, kFactor);
  r.mscale_all_dim = s.number_or("mscale_all_dim", 0, 0, kFactor);
  r.truncate = s.truth_or("truncate", true);
  if (r.beta_fast < r.beta_slow) input_error(s.where() + ": beta_fast must not be less than beta_slow");
}

RopeConfig read_rope(const JsonObject& o, std::int64_t max_positions) {
  constexpr double kLeast = 1.0001, kMost = 1e15;
  RopeConfig r;
  if (o.has("rope_theta")) r.theta = o.number("rope_theta", kLeast, kMost);
  if (o.has("partial_rotary_factor") && o.number("partial_rotary_factor", 0, 1) != 1.0)
    input_error(o.where() + ": partial_rotary_factor below 1 is not supported for this model type");
  if (o.has("rope_parameters") && o.has("rope_scaling"))
    same(o, "rope_parameters (once rope_scaling)", o.raw("rope_parameters"), o.raw("rope_scaling"));
  for (const char* place : {"rope_parameters", "rope_scaling"}) {
    if (!o.has(place)) continue;
    const JsonObject inner = o.object(place);
    read_scaling(inner, max_positions, r);
    if (!inner.has("rope_theta")) continue;
    const double theta = inner.number("rope_theta", kLeast, kMost);
    r.theta = r.theta == 0 ? theta : same(o, "rope_theta", r.theta, theta);
  }
  if (r.theta == 0)
    input_error(o.where() +
                ": rope_theta is missing, at the top and in rope_parameters; add the value that the model "
                "was trained with (10000 for the oldest Llamas)");
  return r;
}

/// As transformers reads the keys of Qwen3: layer_types where given, else full attention below
/// max_window_layers and windows from there on; of Qwen3-MoE: one window for all layers; no windows at all
/// unless use_sliding_window.
std::vector<std::int64_t> read_windows(const JsonObject& o, const Family& f, std::int64_t L) {
  std::vector<std::int64_t> windows(static_cast<std::size_t>(L), 0);
  const bool use = o.truth_or("use_sliding_window", false);
  if (f.windows == Windows::none && (use || o.has("sliding_window")))
    input_error(o.where() + ": sliding_window is not supported for model_type " + std::string(f.model_type) +
                "; remove it when the model was trained without");
  const std::int64_t window = use ? o.whole("sliding_window", 1, kPositions) : 0;
  if (f.windows == Windows::everywhere) {
    if (o.has("layer_types"))
      input_error(o.where() + ": layer_types is not read for model_type " + std::string(f.model_type) +
                  ", whose layers have one window or none; remove it");
    return std::vector<std::int64_t>(static_cast<std::size_t>(L), window);
  }
  if (!o.has("layer_types")) {
    const std::int64_t from = use ? o.whole("max_window_layers", 0, kLayers) : L;
    for (std::int64_t l = from; l < L; ++l) windows[static_cast<std::size_t>(l)] = window;
    return windows;
  }
  const ordered_json& types = o.raw("layer_types");
  if (!types.is_array() || types.size() != windows.size())
    input_error(o.where() + ": layer_types must be a list with one entry for each of the " +
                std::to_string(L) + " layers");
  for (std::size_t l = 0; l < windows.size(); ++l) {
    if (types[l] == "full_attention") continue;
    const std::string place = "entry " + std::to_string(l) + " of layer_types ";
    if (types[l] != "sliding_attention")
      input_error(o.where() + ": " + place +
                  "is neither full_attention nor sliding_attention, which are supported");
    if (!use)
      input_error(o.where() + ": " + place + "is sliding_attention, but use_sliding_window is not true");
    windows[l] = window;
  }
  return windows;
}

std::vector<std::int64_t> read_ids(const JsonObject& o, const std::string& key, std::int64_t V) {
  if (!o.has(key)) return {};
  const ordered_json& v = o.raw(key);
  if (!v.is_array()) return {o.whole(key, 0, V - 1)};
  std::vector<std::int64_t> out;
  for (const ordered_json& id : v) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<std::uint64_t>(V))
      input_error(o.where() + ": " + key +
                  " must hold ids from 0 to vocab_size - 1 = " + std::to_string(V - 1));
    out.push_back(id.get<std::int64_t>());
  }
  return out;
}

std::string read_dtype(const JsonObject& o) {
  std::string type = o.text_or("dtype", o.text_or("torch_dtype", "float32"));
  if (o.has("dtype") && o.has("torch_dtype"))
    same(o, "dtype (once torch_dtype)", type, o.text("torch_dtype"));
  if (type.rfind("torch.", 0) == 0) type.erase(0, 6);
  if (type != "float32" && type != "bfloat16" && type != "float16")
    input_error(o.where() + ": dtype \"" + type + "\" is not supported; float32, bfloat16 and float16 are");
  return type;
}

/// Experts, and the layers that have them: every decoder_sparse_step-th, those of mlp_only_layers excepted.
void read_experts(const JsonObject& o, ModelConfig& c) {
  if (o.has("num_experts") && o.has("num_local_experts"))
    same(o, "the number of experts", o.whole("num_experts", 1, kExperts),
         o.whole("num_local_experts", 1, kExperts));
  c.E = o.whole(o.has("num_local_experts") ? "num_local_experts" : "num_experts", 1, kExperts);
  c.K = o.whole("num_experts_per_tok", 1, c.E);
  c.Fe = o.whole("moe_intermediate_size", 1, kInner);
  c.normalize_topk = o.truth_or("norm_topk_prob", false);
  c.aux_coefficient = o.number_or("router_aux_loss_coef", 0.001, 0, 1000);
  const std::int64_t step = o.whole_or("decoder_sparse_step", 1, 1, kLayers);
  for (std::int64_t l = 0; l < c.L; ++l) c.sparse.push_back((l + 1) % step == 0 ? 1 : 0);
  if (o.has("mlp_only_layers")) {
    const ordered_json& dense = o.raw("mlp_only_layers");
    for (const ordered_json& l : dense) {
      if (!dense.is_array() || !l.is_number_unsigned() ||
          l.get<std::uint64_t>() >= static_cast<std::uint64_t>(c.L))
        input_error(o.where() + ": mlp_only_layers must be a list of layers from 0 to " +
                    std::to_string(c.L - 1));
      c.sparse[l.get<std::size_t>()] = 0;
    }
  }
  if (c.sparse_layers() == 0)
    input_error(o.where() +
                ": no layer has experts (decoder_sparse_step, mlp_only_layers); such a model is of another "
                "model_type");
}

}  // namespace

ModelConfig parse_model_config(const std::string& text, const std::string& where) {
  const ordered_json json = read_json(text, where);
  const JsonObject o(json, where);
  const Family& f = family_of(o);
  refuse_unsupported(o, f);
  ModelConfig c;
  c.json = text;
  c.model_type = f.model_type;
  c.C = o.whole("hidden_size", 1, kWidth);
  c.F = o.whole("intermediate_size", 1, kInner);
  c.V = o.whole("vocab_size", 2, kVocabulary);
  c.L = o.whole("num_hidden_layers", 1, kLayers);
  c.H = o.whole("num_attention_heads", 1, kHeads);
  c.G = f.heads_shared ? o.whole_or("num_key_value_heads", c.H, 1, kHeads)
                       : o.whole("num_key_value_heads", 1, kHeads);
  if (c.H % c.G != 0)
    input_error(where + ": num_key_value_heads " + std::to_string(c.G) +
                " does not divide num_attention_heads " + std::to_string(c.H));
  if (!o.has("head_dim") && f.head_dim_derived) {
    if (c.C % c.H != 0)
      input_error(where + ": head_dim is missing and num_attention_heads " + std::to_string(c.H) +
                  " does not divide hidden_size " + std::to_string(c.C) + "; add head_dim");
    c.D = c.C / c.H;
  } else {
    c.D = o.whole("head_dim", 1, kHeadSize);
  }
  if (c.D % 2 != 0)
    input_error(where + ": head_dim " + std::to_string(c.D) +
                " is odd; the rotary embedding turns pairs of dimensions");
  c.norm_eps = o.number("rms_norm_eps", 0, 1);
  c.qk_norm = f.qk_norm;
  c.qkv_bias = c.o_bias = o.truth_or("attention_bias", false);
  c.mlp_bias = o.truth_or("mlp_bias", false);
  if (c.mlp_bias && !f.mlp_bias_key)
    input_error(where + ": mlp_bias is true, which model_type " + c.model_type + " does not have; remove it");
  c.tied = o.truth_or("tie_word_embeddings", false);
  c.max_positions = o.whole("max_position_embeddings", 1, kPositions);
  c.windows = read_windows(o, f, c.L);
  c.rope = read_rope(o, c.max_positions);
  c.eos = read_ids(o, "eos_token_id", c.V);
  c.bos = o.whole_or("bos_token_id", -1, 0, c.V - 1);
  c.init_std = o.number_or("initializer_range", 0.02, 0, 100);
  c.dtype = read_dtype(o);
  if (f.experts) read_experts(o, c);
  return c;
}

std::vector<std::int64_t> ModelConfig::distinct_windows() const {
  std::vector<std::int64_t> out = windows;
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::int64_t ModelConfig::sparse_layers() const {
  return std::count(sparse.begin(), sparse.end(), 1);
}

std::int64_t ModelConfig::parameters() const {
  const std::int64_t q = H * D, kv = G * D, experts = sparse_layers();
  std::int64_t layer = 2 * C + C * (q + 2 * kv) + q * C;
  if (qk_norm) layer += 2 * D;
  if (qkv_bias) layer += q + 2 * kv;
  if (o_bias) layer += C;
  const std::int64_t mlp = 3 * C * F + (mlp_bias ? 2 * F + C : 0);
  return V * C * (tied ? 1 : 2) + C + L * layer + (L - experts) * mlp + experts * E * (C + 3 * C * Fe);
}

}  // namespace annulus
