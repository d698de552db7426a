// Loss over a data set: the same numbers on any layout.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
#include "comm/comm.h"
#include "data/dataset.h"
#include "train/engine.h"
#include "train/run_folder.h"

namespace annulus {

/// Targets that are predicted from positions [from, to) of their document.
struct PositionLoss {
  std::int64_t from = 0, to = 0;
  std::int64_t targets = 0;
  double loss = 0;  // their mean; 0 without targets
};

/// Means weigh every target the same.
struct EvalResult {
  double loss = 0, perplexity = 0;
  double accuracy = 0;  // targets that were the most likely token
  double entropy = 0;   // of the predictions, in nats
  std::int64_t targets = 0, tokens = 0;
  double seconds = 0;
  std::vector<PositionLoss> positions;  // train.eval_positions buckets of equal length, of data.sequence
};
/// Every row once, whatever the layout. Collective.
EvalResult evaluate(Comm& world, Engine&, Dataset&);

/// "eval loss 2.345678  perplexity 10.4406  accuracy 0.5012  entropy 2.1034  over 8191 targets".
std::string eval_line(const EvalResult&);
/// One line for each bucket of positions that has targets.
std::vector<std::string> position_lines(const EvalResult&);
/// What an evaluation adds to its step's line of metrics.jsonl: a JSON object. `best`: of the run so far.
std::string eval_fields(const EvalResult&, const Best& best);

}  // namespace annulus
