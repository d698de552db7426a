#include "train/step_plan.h"
#include <algorithm>
#include <cmath>
#include "data/dataset.h"

namespace annulus {

StepPlan::StepPlan(std::int64_t rows, std::int64_t rows_per_step, const DataSection& data,
                   const TrainSection& train)
    : rows_(rows), rows_per_step_(rows_per_step), seed_(train.seed), shuffle_(data.shuffle) {
  need(rows > 0 && rows_per_step > 0, "a step plan needs rows");
  steps_per_epoch_ = (rows + rows_per_step - 1) / rows_per_step;
  total_ = train.steps > 0
               ? train.steps
               : static_cast<std::int64_t>(std::ceil(data.epochs * static_cast<double>(steps_per_epoch_)));
}

StepRows StepPlan::step(std::int64_t step) {
  StepRows s;
  s.epoch = step / steps_per_epoch_;
  if (s.epoch != epoch_) {
    order_ = row_order(rows_, seed_, s.epoch, shuffle_);
    epoch_ = s.epoch;
  }
  const std::int64_t from = step % steps_per_epoch_ * rows_per_step_;
  const std::int64_t to = std::min(rows_, from + rows_per_step_);
  s.rows.assign(order_.begin() + from, order_.begin() + to);
  s.epoch_after = static_cast<double>(s.epoch) + static_cast<double>(to) / static_cast<double>(rows_);
  return s;
}

std::int64_t row_of(const StepRows& s, std::int64_t micro, int group, int groups) {
  const std::int64_t i = micro * groups + group;
  return i < static_cast<std::int64_t>(s.rows.size()) ? s.rows[static_cast<std::size_t>(i)] : -1;
}

std::int64_t micro_steps(const StepRows& s, int groups) {
  return (static_cast<std::int64_t>(s.rows.size()) + groups - 1) / groups;
}

}  // namespace annulus
