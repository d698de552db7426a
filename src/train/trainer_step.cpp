// One optimizer step of a run, and what is due at its edge.
#include <algorithm>
#include <cmath>
#include <numeric>
#include "io/fault.h"
#include "train/clock.h"
#include "train/flops.h"
#include "train/metrics.h"
#include "train/schedule.h"
#include "train/trainer.h"

namespace annulus {
namespace {

std::string plain(double v) {
  return std::isnan(v) ? "nan" : std::to_string(v);  // without the sign that some processors give it
}

}  // namespace

void Trainer::step() {
  need(more(), "a step after the end of the run");
  try {
    run_step();
    if (!gradients_written_) at_edge();
  } catch (const Error& e) {
    // What is being saved is whole, whatever became of this step.
    if (e.everywhere) finish_behind(true);
    throw;
  } catch (const Stopped& stopped) {
    stop_ = stopped.why;
    engine_->abandon();
    folder_.say(std::string(name_of(stop_)) + ": saving the state after step " +
                std::to_string(progress_.step));
    save();
  }
}

std::vector<LocalRow> Trainer::read_rows(const StepRows& rows) {
  const std::vector<std::int64_t> windows = model_.config.distinct_windows();
  std::vector<LocalRow> local;
  agreed(world_, "reading the step's rows", [&] {
    for (std::int64_t m = 0; m < micro_steps(rows, grid_.data); ++m)
      local.push_back(data_->local_row(row_of(rows, m, grid_.data_index, grid_.data), grid_,
                                       engine_->spec().per_member, windows));
  });
  return local;
}

void Trainer::run_step() {
  const std::int64_t k = progress_.step;
  const Watchdog::Phase phase(watchdog_, k == first_step_ ? "first step" : "step", k + 1);
  if (node_.step != nullptr) *node_.step = k + 1;
  const double begun = steady_seconds();
  // A step is begun only when there is time for it, with room to spare, and a save; one that has begun goes
  // on as long as there is time for the save.
  agree_on_stop(recent_.empty() ? 0 : 1.5 * *std::max_element(recent_.begin(), recent_.end()));
  inject_fault(run_.debug.fail, "step", world_.rank(), "nothing", 0);

  const StepRows rows = plan_->step(k);
  const std::vector<LocalRow> local = read_rows(rows);
  StepReport r{
      .step = k + 1, .lr = learning_rate(run_.optimizer, k, plan_->total()), .epoch = rows.epoch_after};
  std::int64_t targets = 0;
  for (const LocalRow& row : local) targets += row.target_count();
  r.targets = world_.sum(targets);
  for (const std::int64_t row : rows.rows) r.tokens += data_->row_tokens(row);

  // The one division: losses and gradients are sums, and each target weighs the same wherever it lies.
  const double scale = r.targets > 0 ? 1.0 / static_cast<double>(r.targets) : 0.0;
  const double token_share = r.tokens > 0 ? 1.0 / static_cast<double>(r.tokens) : 0.0;
  const double aux_coefficient = engine_->spec().aux_coefficient;
  // nll, hits, entropy; flops and auxiliary loss of rows that this rank is the first holder of
  double sums[5] = {};
  double load_max = 0;
  BadTargets bad;
  for (std::size_t m = 0; m < local.size(); ++m) {
    const RowTotals totals = engine_->micro(local[m], scale, aux_coefficient * token_share);
    sums[0] += totals.nll;
    sums[1] += totals.hits;
    sums[2] += totals.entropy;
    load_max = std::max(load_max, totals.router.load_max);
    if (!std::isfinite(totals.nll))
      bad.look(row_of(rows, static_cast<std::int64_t>(m), grid_.data_index, grid_.data), local[m],
               engine_->nll(), grid_);
    if (grid_.ring_index != 0 || grid_.ulysses_index != 0) continue;
    const RowShape& shape = local[m].map.shape();
    sums[3] += model_flops(model_.config, engine_->spec().options.lora, shape);
    sums[4] += totals.router.aux * static_cast<double>(shape.used);
  }
  world_.all_reduce(std::span<double>(sums));
  world_.all_reduce(std::span<double>(&load_max, 1), Reduce::max);
  r.experts = model_.config.E > 0;
  r.aux_loss = sums[4] * token_share;
  r.expert_load_max = load_max;
  r.loss = sums[0] * scale + aux_coefficient * r.aux_loss;
  r.accuracy = sums[1] * scale;
  r.entropy = sums[2] * scale;
  r.flops = sums[3];
  if (r.targets == 0)
    folder_.say("step " + std::to_string(r.step) + " has no target: its loss is 0 and its gradient zero" +
                (aux_coefficient > 0 ? ", but for the auxiliary loss" : ""));
  if (!run_.debug.gradients.empty()) {
    write_gradients();
    return;
  }

  if (!std::isfinite(r.loss)) diverged(r, bad.describe(world_, *data_, node_.host, r.targets));
  r.grad_norm = engine_->update(r.lr, k + 1).norm;
  engine_->settle();
  if (!std::isfinite(r.grad_norm))
    diverged(r, "the loss is finite and the gradient of one of its rows is not: " +
                    rows_in_words(*data_, rows.rows));
  r.seconds = steady_seconds() - begun;
  report_ = r;
  progress_.step = k + 1;
  progress_.tokens += r.tokens;
  progress_.targets += r.targets;
}

void Trainer::diverged(const StepReport& r, const std::string& where) {
  engine_->abandon();
  finish_behind(true);
  std::string kept = saved_step_ >= 0 ? folder_.checkpoint(saved_step_) + " is as it was"
                                      : "no checkpoint was written before it";
  throw Error(Exit::bug,
              "step " + std::to_string(r.step) + ": loss " + plain(r.loss) + ", gradient norm " +
                  (std::isfinite(r.loss) ? plain(r.grad_norm) : std::string("not taken")) + ": " + where +
                  "; nothing of this step was applied or saved, and " + kept +
                  "; look at that data or lower optimizer.lr, and start again",
              true);
}

void Trainer::write_gradients() {
  const double norm = engine_->finish_gradients();
  save_gradients(world_, *engine_, run_.debug.gradients,
                 {{"config_json", model_.config.json}, {"grad_norm", std::to_string(norm)}});
  gradients_written_ = true;
  folder_.say("wrote the gradients of step " + std::to_string(progress_.step + 1) + " to " +
              run_.debug.gradients);
}

void Trainer::record(const StepReport& r) {
  const PeakBytes bytes = peak_bytes(world_, *engine_);
  folder_.metric(metric_line(r, progress_.tokens, world_.size(), bytes, backend_.peak_flops(), eval_json_));
  eval_json_.clear();
  const std::int64_t every = run_.train.log_every;
  if (every > 0 && (r.step % every == 0 || r.step == plan_->total())) {
    const double mean =
        std::accumulate(recent_.begin(), recent_.end(), 0.0) / static_cast<double>(recent_.size());
    folder_.say(readable_line(r, plan_->total(), mean * static_cast<double>(plan_->total() - r.step)));
  }
}

void Trainer::at_edge() {
  constexpr std::size_t kRecent = 5;
  const Watchdog::Phase phase(watchdog_, "end of step", progress_.step);
  recent_.push_back(report_.seconds);
  if (recent_.size() > kRecent) recent_.pop_front();
  finish_behind(false);
  const std::int64_t k = progress_.step;
  const bool last = k == plan_->total();
  const bool evaluate_now =
      eval_data_ && (last || (run_.train.eval_every > 0 && k % run_.train.eval_every == 0));
  Stop stop = Stop::none;
  try {
    if (evaluate_now) run_evaluation();
  } catch (const Stopped& stopped) {
    stop = stopped.why;  // the step itself is whole: its line is written, its state saved
  }
  record(report_);
  if (stop != Stop::none) throw Stopped{stop};

  const bool by_step = run_.checkpoint.every > 0 && k % run_.checkpoint.every == 0;
  const bool by_time =
      run_.checkpoint.minutes > 0 && steady_seconds() - last_save_ > 60 * run_.checkpoint.minutes;
  // Rank 0's clock decides for all.
  if (!last && (by_step || world_.max(world_.rank() == 0 && by_time ? 1 : 0) > 0)) save_behind();
}

}  // namespace annulus
