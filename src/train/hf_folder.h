// From a file of trained weights to a Hugging Face folder.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>
#include "comm/comm.h"
#include "core/parameter.h"
#include "io/weights.h"

namespace annulus {

struct ModelSource;

/// What a checkpoint remembers of where its weights came from, so that it can be exported alone: the folder
/// with the tokenizer's files, and each tensor's type there.
std::map<std::string, std::string> source_facts(const ModelSource&, const std::string& model_path,
                                                const std::vector<Unit>&);

/// Writes FOLDER from the weights of a checkpoint or weights file, in the types that its source had; from
/// adapters PEFT's folder. Collective.
void export_folder(Comm& world, const std::string& h5_path, const std::string& folder,
                   const std::function<void()>& beat);
/// That of adapters: adapter_config.json and adapter_model.safetensors. Collective.
void export_adapters(Comm& world, const std::string& h5_path, const std::string& folder,
                     const std::function<void()>& beat);
/// Writes the whole model that a file of adapters makes with its base: W + scale * B A in f32, rounded once
/// to W's type. `base`: the base's path, "" for the one that the file names. Collective.
void export_merged(Comm& world, const std::string& h5_path, const std::string& base,
                   const std::string& folder, const std::function<void()>& beat);

}  // namespace annulus
