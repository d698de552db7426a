// What a run keeps in a checkpoint, how it is taken up again, and what may change between two lives of a run.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include "comm/comm.h"
#include "config/run_config.h"
#include "data/dataset.h"
#include "io/checkpoint.h"
#include "io/weights.h"
#include "train/engine.h"
#include "train/staging.h"

namespace annulus {

/// Counters of a run after `step` whole steps. With the plan of rows they say where in the data it stands.
struct Progress {
  std::int64_t step = 0;
  std::int64_t rows_per_step = 0;
  std::int64_t tokens = 0;  // seen, each once
  std::int64_t targets = 0;
};

/// 64-bit FNV-1a as 16 hexadecimal digits.
std::string fingerprint(const std::string& bytes);
/// Of the shapes and names of all parameters, adapters among them, and of what config.json says about the
/// computation.
std::string model_fingerprint(const ModelConfig&, const std::vector<Unit>&);
/// Of the token file's document lengths and a sample of its ids: where the file lies does not matter.
std::string data_fingerprint(Comm& world, TokenFile&);

/// Facts of a checkpoint: progress, fingerprints, the run's config.ini and the model's config.json.
std::map<std::string, std::string> make_facts(const Progress&, const RunConfig&, const ModelConfig&,
                                              const std::string& model_print, const std::string& data_print);
/// Input error that names the file when a fact is missing or no number.
Progress progress_of(const H5Reader&, const std::string& path);

/// Refuses (usage error that names the key and both values) a config that differs from the checkpoint's in a
/// key that may not change between lives, and (input error) another model or other data.
void check_same_run(const H5Reader&, const std::string& path, const RunConfig&,
                    const std::string& model_print, const std::string& data_print);

/// Writes masters and moments of what is trained with these facts. Collective.
void save_state(Comm& world, Engine&, const std::string& path, std::map<std::string, std::string> facts,
                const std::string& fail);
/// The same in steps (see Save). The pieces lie in `staging`, which must stay as it is until finish().
std::unique_ptr<Save> begin_state(Comm& world, Engine&, Staging& staging, const std::string& path,
                                  std::map<std::string, std::string> facts, const std::string& fail);
/// Bytes of a file that save_state() writes.
std::int64_t state_bytes(Engine&);
/// Writes the gradients as /model/NAME in f32. Collective.
void save_gradients(Comm& world, Engine&, const std::string& path, std::map<std::string, std::string> facts);
/// Writes the trained weights alone as /model/NAME. Collective.
void save_weights(Comm& world, Engine&, const std::string& path, std::map<std::string, std::string> facts);
/// Fills the weights, and moments when `moments`. A checkpoint `from`, of any world, has what is trained: all
/// weights, or the adapters. Without one, adapters come from `start`. What neither holds comes from `base`,
/// the model's files; random where a source is null. Collective for the outcome.
void fill_engine(Comm& world, Engine&, WeightSource* base, H5Reader* from, WeightSource* start, Staging&,
                 bool moments, const std::function<void()>& beat);

}  // namespace annulus
