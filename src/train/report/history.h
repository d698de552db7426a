// What a run folder says about its run, also while it goes on: metrics.jsonl, status.json and the two texts.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>
#include "train/evaluation.h"

namespace annulus {

/// A field of metrics.jsonl over the points of a history; not a number where a point has none.
struct Curve {
  std::vector<double> mean, low, high;
};

/// One evaluation: the eval_* fields of its step, without the prefix.
struct EvalPoint {
  std::int64_t step = 0;
  std::map<std::string, double> values;
  std::vector<PositionLoss> positions;
};

/// A run so far. `points` consecutive steps or fewer are a point each; of more steps each point covers an
/// equal share, with the mean, the least and the greatest of every field.
struct History {
  std::string folder, name;                // as given; its last component
  std::int64_t lines = 0, unreadable = 0;  // of metrics.jsonl; a last one without its end is not counted
  std::vector<std::int64_t> first, step;   // of each point: its first and its last step
  std::map<std::string, Curve> curves;
  std::map<std::string, double> last;  // of the newest step
  std::vector<EvalPoint> evals;
  double seconds = 0;    // of all steps
  double step_time = 0;  // median of the last steps
  // status.json
  std::string reason;
  std::int64_t first_step = 0, total = 0, best_step = -1;
  bool alive = false;  // somebody holds RUN/lock and renews it
  std::string config, facts;
};

/// At most `most` of 0 .. n - 1, evenly spread, the last among them.
std::vector<std::size_t> spread(std::size_t n, std::size_t most);

/// Input error when the folder has no metrics.jsonl. Lines that are no steps are counted; where a step comes
/// twice (a run that went on from an earlier one) the newer life counts.
History read_history(const std::string& folder, std::size_t points);

}  // namespace annulus
