// LoRA's side of a run: where its adapters come from, which base they belong to, what is remembered of them.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>
#include "comm/comm.h"
#include "config/lora.h"
#include "io/checkpoint.h"
#include "io/weights.h"
#include "train/setup.h"

namespace annulus {

/// Names of facts in a file of adapters: the text of adapter_config.json, the base's path, and a fingerprint
/// of its values.
inline constexpr const char* kAdapterFact = "adapter_config";
inline constexpr const char* kBaseFact = "base_path";
inline constexpr const char* kBasePrintFact = "base_fingerprint";

/// The adapter folder that checkpoint.resume names, or null. Settles run.lora by it: what is not given comes
/// from the folder, what differs is a usage error that names the key.
std::unique_ptr<WeightSource> open_start(const ModelConfig&, RunConfig&);
/// The same for a checkpoint: run.lora becomes that of its adapters. Usage error when it holds all weights
/// and the run has adapters.
void settle_lora(const H5Reader&, const ModelConfig&, const std::string& path, RunConfig&);
/// Input error unless the source holds every adapter of the units in its shape, and nothing else.
void check_adapters(const WeightSource&, const ModelConfig&, const LoraConfig&, const std::string& path);

/// Of a sample of the model's weights in the source. Collective.
std::string base_fingerprint(Comm& world, WeightSource&, const ModelConfig&);
/// Of those that a run's adapters stand on, or of the seed where they are random; "" without adapters.
std::string base_fingerprint(Comm& world, const ModelSource&, const RunConfig&);
/// Input error when the file's adapters were trained on other base weights.
void check_base(const std::map<std::string, std::string>& facts, const std::string& path,
                const std::string& base_print, const std::string& base_path);

std::map<std::string, std::string> adapter_facts(const RunConfig&, const ModelConfig&,
                                                 const std::string& base_print);

/// "LoRA of rank 16, scale 2, on q_proj, v_proj: 72 matrices adapted, 3833856 of 8194569216 parameters
/// trained".
std::string describe_adapters(const ModelConfig&, const LoraConfig&);

}  // namespace annulus
