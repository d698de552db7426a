// The first values of the weights: from files, each rank reading only its own segments, or random.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include "comm/comm.h"
#include "config/model_config.h"
#include "io/weights.h"
#include "parallel/sharded_state.h"
#include "train/staging.h"

namespace annulus {

/// Input error unless the source holds every parameter of the model in its shape and nothing that the model
/// does not know. The same on every rank.
void check_source(const WeightSource&, const std::vector<Unit>&, const ModelConfig&, const std::string& path);

/// Units [first, end) of a state.
struct UnitRange {
  int first = 0, end = 0;
};

/// Collective over `world` for the outcome; `beat` is called after every slab.
void fill_from(Comm& world, WeightSource&, ShardedState&, UnitRange, Staging&,
               const std::function<void()>& beat);

/// normal(seed, Draw::init, parameter, index) * init_std, or init_value where that is 0, or uniform within
/// init_bound where that is positive: the same weights in every layout.
void fill_random(ShardedState&, UnitRange, Staging&, std::int64_t seed, const std::function<void()>& beat);

}  // namespace annulus
