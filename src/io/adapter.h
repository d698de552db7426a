// Adapters as PEFT keeps them: a folder with adapter_config.json and adapter_model.safetensors.
#pragma once
#include <memory>
#include <string>
#include <vector>
#include "config/lora.h"
#include "io/weights.h"

namespace annulus {

inline constexpr const char* kAdapterConfig = "adapter_config.json";

bool is_adapter_folder(const std::string& path);
/// Tensors of the folder, those of experts as stacks (expert_adapters.h); config_json() is the text of
/// adapter_config.json.
std::unique_ptr<WeightSource> open_adapter(const std::string& folder);

/// What adapter_config.json and the tensors' names say: rank and scale from the one, targets from the other.
/// Input error that names `where` and the field for adapters of another kind than ours.
LoraConfig adapter_of(const std::string& json, const std::vector<StoredTensor>&, const std::string& where);

/// adapter_config.json as PEFT writes it. `base`: base_model_name_or_path.
std::string adapter_json(const LoraConfig&, const ModelConfig&, const std::string& base);

/// "base_model.model.model.layers.0.self_attn.q_proj" for "model.layers.0.self_attn.q_proj.weight"; what
/// follows it in an adapter is ".lora_A.weight" and ".lora_B.weight". Empty for what is not adapted.
std::string adapter_name(const LoraConfig&, const std::string& weight);

}  // namespace annulus
