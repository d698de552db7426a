// What a step says: one line of metrics.jsonl, one readable line.
#pragma once
#include <cstdint>
#include <string>
#include "train/engine.h"
#include "train/trainer.h"

namespace annulus {

/// Bytes at their highest so far, the largest over all ranks.
struct PeakBytes {
  std::int64_t device_peak = 0;  // the arena's: state, temporaries, buffers of collectives
  std::int64_t device_used = 0;  // what the whole process takes from the device
  std::int64_t host_peak = 0;    // resident memory of the process
};
PeakBytes peak_bytes(Comm& world, Engine&);

/// One JSON object. `device_peak`: the data sheet's flop/s of a rank's device, 0 where there is none (mfu
/// null). `tokens_seen`: of the whole run so far. `extra`: fields of an evaluation, or "".
std::string metric_line(const StepReport&, std::int64_t tokens_seen, int ranks, const PeakBytes&,
                        double device_peak_flops, const std::string& extra);
/// "step 12/400  loss 2.3456  norm 1.23  lr 1.5e-05  0.52 s  15753 tok/s  ETA 3:20".
std::string readable_line(const StepReport&, std::int64_t total, double eta_seconds);

}  // namespace annulus
