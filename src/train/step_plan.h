// Which rows make which step: a global list that no layout changes.
#pragma once
#include <cstdint>
#include <vector>
#include "config/run_config.h"

namespace annulus {

/// Rows of one optimizer step.
struct StepRows {
  std::int64_t epoch = 0;
  std::vector<std::int64_t> rows;  // row i goes to data group i mod data
  double epoch_after = 0;          // epochs that have passed when the step is done
};

/// Every epoch deals all rows in the order of row_order(seed, epoch), `rows_per_step` at a time; its last
/// step may have fewer. So the step's number alone says where in the data a run stands.
class StepPlan {
 public:
  StepPlan(std::int64_t rows, std::int64_t rows_per_step, const DataSection&, const TrainSection&);
  std::int64_t total() const { return total_; }  // steps of the run: train.steps, else by data.epochs
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  std::int64_t rows_per_step() const { return rows_per_step_; }
  /// Rows of step `step`, from 0.
  StepRows step(std::int64_t step);

 private:
  std::int64_t rows_, rows_per_step_, steps_per_epoch_, total_, seed_;
  bool shuffle_;
  std::int64_t epoch_ = -1;  // whose order is held
  std::vector<std::int64_t> order_;
};

/// Row of micro-step `micro` for data group `group` of `groups`; -1: none is left, the group runs an empty
/// one.
std::int64_t row_of(const StepRows&, std::int64_t micro, int group, int groups);
/// Micro-steps that every group runs: ceil(rows / groups).
std::int64_t micro_steps(const StepRows&, int groups);

}  // namespace annulus
