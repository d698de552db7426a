// Opening what a run works on: the model's config and weights, the token files, the engine.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>
#include "config/model_config.h"
#include "config/run_config.h"
#include "data/dataset.h"
#include "io/weights.h"
#include "train/engine.h"

namespace annulus {

struct ModelSource {
  ModelConfig config;                     // with the run's rope overrides; its `json` too
  std::unique_ptr<WeightSource> weights;  // null when model.init=random
};

/// config.json of model.path with the run's overrides; no weights are needed.
ModelConfig model_config_of(const RunConfig&);
/// The same on every rank. Weights are checked against the config.
ModelSource open_model(const RunConfig&);

/// The token file of `files`: itself when it is one (.h5), else `out`, tokenized now unless `reuse` and it is
/// there.
std::string token_file_of(Comm& world, const std::vector<std::string>& files, const RunConfig&,
                          const ModelConfig&, const std::string& out, bool reuse);

/// Type of the computation: what device.precision asks for, by default bf16 on a device and f32 on a CPU.
DType compute_type(const RunConfig&, Place);

using Say = std::function<void(const std::string&)>;

/// Counts memory, refuses what cannot fit, says what it will take, and builds the engine. Collective.
std::unique_ptr<Engine> build_engine(Comm& world, const Node&, Backend&, const EngineSpec&, bool with_eval,
                                     std::function<void()> at_layer, const Say&);

}  // namespace annulus
