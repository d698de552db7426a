// One rank of a job of any size, really run on one device: its peers are pretended (loopback), its kernels,
// memory and lanes are those of the real run, its weights and tokens are random.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>
#include "ops/profiled.h"
#include "train/engine.h"
#include "train/spot_check.h"

namespace annulus {

struct RehearsalOptions {
  std::int64_t warmup = 1;  // steps before the timed ones
  std::int64_t steps = 3;
  std::int64_t document = 0;  // tokens of each document of the row; 0: one document
  bool profile = false;       // every operation stamped, and what the computation waits for
  Links links;                // transfers take as long as over these; rates of 0: as long as their copies
  std::int64_t check = 0;     // queries and keys to compute again in f64, once the steps are timed
};

struct RehearsalReport {
  std::vector<double> seconds;     // of the timed steps
  double loss = 0, grad_norm = 0;  // of the last step; finite, or the times mean nothing
  double flops = 0;                // of a step, over all ranks that share the row
  std::int64_t parameters = 0;
  std::int64_t planned_bytes = 0;      // of the arena
  std::int64_t peak_bytes = 0;         // what it holds
  std::int64_t device_used_bytes = 0;  // what the whole process takes from the device
  std::int64_t pinned_bytes = 0;
  double profiled_seconds = 0;
  std::map<std::string, OpTime> profile;
  std::optional<SpotCheck> check;
  double median() const;
};

/// `node`: where the rank would stand in the pretended job. `spec.probe` is set when the options ask for a
/// check. Environment error when the job does not fit the device; error when the loss is not finite.
RehearsalReport rehearse(Backend&, const EngineSpec&, const Node&, const RehearsalOptions&);

/// The report as lines for a person: s/step, tokens/s, MFU, GB, and where the time goes.
std::string describe(const RehearsalReport&, const EngineSpec&, double peak_flops);

}  // namespace annulus
