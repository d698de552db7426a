// Ranks of a job, really run and measured: kernels, memory and lanes are those of the real run, weights and
// tokens are random. Their peers are the processes that were started, or pretended (loopback), so that one
// device stands for one rank of a job of any size.
#pragma once
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
  bool profile = false;       // operations and transfers stamped, and what the computation waits for
  std::int64_t check = 0;     // queries and keys to compute again in f64, once the steps are timed
};

/// The other ranks of the job.
struct Peers {
  Comm& started;           // the processes that rehearse side by side, each a rank of the job
  bool pretended = false;  // false: the job's ranks are these, and what they send each other is sent
  Links links{};           // pretended transfers take as long as over these; rates of 0: as their copies
};

/// What one of the processes saw.
struct RankFigures {
  int rank = 0;
  double seconds = 0;           // median of its timed steps
  double waited = 0;            // of the last step's, the computation for other lanes; 0 without a profile
  std::int64_t peak_bytes = 0;  // what its arena holds
  std::int64_t device_used_bytes = 0;  // what the whole process takes from the device
  std::int64_t pinned_bytes = 0;
};

struct RehearsalReport {
  std::vector<double> seconds;     // of the timed steps, each the slowest process's
  double loss = 0, grad_norm = 0;  // of the last step; finite, or the times mean nothing
  bool pretended = false;          // then sums are no real ones
  double flops = 0;                // of a step, over all ranks that share the row
  std::int64_t parameters = 0;     // that this rank's units have in full
  std::int64_t planned_bytes = 0;  // of this rank's arena
  std::int64_t peak_bytes = 0;     // this and the next two: of the process that has most
  std::int64_t device_used_bytes = 0;
  std::int64_t pinned_bytes = 0;
  std::vector<RankFigures> ranks;  // one a process
  double profiled_seconds = 0;     // the step that `profile` is of, both this rank's
  Profile profile;
  std::optional<SpotCheck> check;
  double median() const;
};

/// `node`: where the rank stands in its job. `spec.probe` is set when the options ask for a check.
/// Environment error when the job does not fit the device; error when the loss is not finite. Collective over
/// `peers.started`.
RehearsalReport rehearse(Backend&, const EngineSpec&, const Node&, const Peers&, const RehearsalOptions&);

/// The report as lines for a person: s/step, tokens/s, MFU, GB, and where the time goes.
std::string describe(const RehearsalReport&, const EngineSpec&, double peak_flops);
/// The same for a program, on one line; keys that a plan has too are named as there.
std::string rehearsal_json(const RehearsalReport&, const EngineSpec&, double peak_flops);

}  // namespace annulus
