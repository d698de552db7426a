// config.json of a Hugging Face folder, as far as the computation needs it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace annulus {

/// Rotary embedding, every type reduced to what the op needs by rope_frequencies().
struct RopeConfig {
  std::string type = "default";  // default, yarn, llama3
  double theta = 0;              // never defaulted in silence
  double factor = 1;
  std::int64_t original_positions = 0;               // original_max_position_embeddings
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn
  double attention_factor = 0;                       // yarn; 0: by the formula
  double mscale = 0, mscale_all_dim = 0;             // yarn
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
};

struct ModelConfig {
  std::string model_type;  // qwen3, qwen3_moe, llama
  std::int64_t C = 0, F = 0, V = 0, L = 0, H = 0, G = 0, D = 0;
  std::int64_t E = 0, K = 0;         // experts of a sparse layer, and how many of them a token takes
  std::int64_t Fe = 0;               // MLP width of an expert
  std::vector<std::uint8_t> sparse;  // per layer: 1 where experts take the MLP's place; empty: nowhere
  bool normalize_topk = false;       // a token's weights are divided by their sum
  double aux_coefficient = 0;        // of the load balancing loss, as the model's authors set it
  double norm_eps = 1e-6;
  bool qk_norm = false;   // RMSNorm on q and k heads
  bool qkv_bias = false;  // on q, k, v
  bool o_bias = false;
  bool mlp_bias = false;
  bool tied = false;                  // head = embedding
  std::vector<std::int64_t> windows;  // per layer; 0: none
  RopeConfig rope;
  std::int64_t max_positions = 0;  // trained positions (max_position_embeddings)
  std::vector<std::int64_t> eos;   // ids
  std::int64_t bos = -1;
  double init_std = 0.02;         // initializer_range
  std::string dtype = "float32";  // of the source: float32, bfloat16, float16
  std::string json;               // the file's text, for export

  std::vector<std::int64_t> distinct_windows() const;
  bool has_experts(std::int64_t layer) const {
    return !sparse.empty() && sparse[static_cast<std::size_t>(layer)] != 0;
  }
  std::int64_t sparse_layers() const;
  std::int64_t parameters() const;  // counted from the shapes
};

/// Reads and checks config.json text. Unknown model types, rope types, activations and contradictions are
/// refused by name (input error that names `where`).
ModelConfig parse_model_config(const std::string& json, const std::string& where);

struct ModelSection;
struct RunConfig;
/// config.json with the run's model.rope.* keys written into it, in whichever of the two places the file
/// uses, so that an exported folder computes the same.
std::string with_overrides(const std::string& json, const ModelSection&, const std::string& where);

/// Whether the positions of the run's longest document are among those that the model can tell apart. Returns
/// a warning, with the figures, or nothing; usage error where the run itself stretches them, and not enough.
std::string check_positions(const ModelConfig&, const RunConfig&);

struct RopeFrequencies {
  std::vector<double> inv_freq;  // (rotary dims / 2)
  double factor = 1.0;           // attention_factor: multiplies cos and sin
};
/// Frequencies after scaling; see src/README.md for the formulas. `D`: rotary dimensions.
RopeFrequencies rope_frequencies(const RopeConfig&, std::int64_t D);

}  // namespace annulus
