// Checkpoints of a run: when there is room for them, written now or beside the training.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include "core/gigabytes.h"
#include "io/fault.h"
#include "train/clock.h"
#include "train/trainer.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

}  // namespace

void Trainer::check_space(const std::string& checkpoints) {
  const std::int64_t bytes = state_bytes(*engine_);
  agreed(world_, "checking the disk", [&] {
    if (world_.rank() != 0) return;
    std::error_code error;
    const fs::space_info space = fs::space(checkpoints, error);
    if (error || static_cast<double>(space.available) >= static_cast<double>(bytes)) return;
    environment_error("a checkpoint takes " + gigabytes(static_cast<double>(bytes)) + " and " + checkpoints +
                      " has " + gigabytes(static_cast<double>(space.available)) +
                      " free; free space there, or give a run.dir on another file system");
  });
}

std::map<std::string, std::string> Trainer::facts() {
  std::map<std::string, std::string> facts =
      make_facts(progress_, run_, model_.config, model_print_, data_print_);
  facts.merge(weight_facts());
  return facts;
}

void Trainer::saved(const std::string& path, std::int64_t step, double begun) {
  saved_step_ = step;
  const double written =
      steady_seconds() - begun;  // older files go only after the new one has been read back
  if (run_.checkpoint.keep > 0) prune_checkpoints(world_, folder_.path("checkpoints"), run_.checkpoint.keep);
  last_save_ = steady_seconds();
  save_seconds_ = std::max(save_seconds_, last_save_ - begun);
  const auto bytes = static_cast<double>(state_bytes(*engine_));
  char rate[64];
  std::snprintf(rate, sizeof rate, " in %.2f s, %.2f GB/s", written, bytes * 1e-9 / written);
  folder_.say("saved " + path + ", " + gigabytes(bytes) + rate);
  Status s = status("running");
  s.step = step;
  folder_.status(s);
}

void Trainer::save() {
  finish_behind(true);
  if (saved_step_ == progress_.step) return;
  const Watchdog::Phase phase(watchdog_, "save", progress_.step);
  const double begun = steady_seconds();
  const std::string path = folder_.checkpoint(progress_.step);
  agreed(world_, "save", [&] { inject_fault(run_.debug.fail, "save", world_.rank(), path, 0); });
  save_state(world_, *engine_, path, facts(), run_.debug.fail);
  saved(path, progress_.step, begun);
}

void Trainer::save_behind() {
  if (!behind_->wanted(world_, *engine_, run_.checkpoint.background, node_.local_size)) {
    save();
    return;
  }
  finish_behind(true);
  if (saved_step_ == progress_.step) return;
  const Watchdog::Phase phase(watchdog_, "save", progress_.step);
  last_save_ = steady_seconds();
  const std::string path = folder_.checkpoint(progress_.step);
  agreed(world_, "save", [&] { inject_fault(run_.debug.fail, "save", world_.rank(), path, 0); });
  behind_->begin(world_, *engine_, {.step = progress_.step, .path = path, .begun = last_save_}, facts(),
                 run_.debug.fail);
}

void Trainer::finish_behind(bool now) {
  if (!behind_->active()) return;
  if (!now && !behind_->written(world_)) return;
  const BackgroundSave::Job job = behind_->job();
  const Watchdog::Phase phase(watchdog_, "save", job.step);
  behind_->finish();
  saved(job.path, job.step, job.begun);
}

void Trainer::open_best() {
  if (!run_.checkpoint.best) return;
  eval_print_ = data_fingerprint(world_, eval_data_->file());
  const std::string path = folder_.path("best.h5");
  if (world_.max(world_.rank() == 0 && fs::exists(path) ? 1 : 0) == 0) return;
  try {
    agreed(world_, "opening the best weights", [&] { best_ = best_of(path, eval_print_); });
    folder_.say("best so far: step " + std::to_string(best_.step) + ", eval loss " +
                std::to_string(best_.loss));
  } catch (const Error& e) {
    if (e.code != Exit::input) throw;
    folder_.say("passing over " + path + ": " + e.what());
  }
}

void Trainer::keep_best(double loss) {
  if (!run_.checkpoint.best || !std::isfinite(loss) || (best_.step >= 0 && loss >= best_.loss)) return;
  const Watchdog::Phase phase(watchdog_, "save", progress_.step);
  const double begun = steady_seconds();
  const std::string path = folder_.path("best.h5");
  std::map<std::string, std::string> all = facts();
  all.merge(best_facts(loss, eval_print_));
  save_weights(world_, *engine_, path, std::move(all));
  best_ = {.step = progress_.step, .loss = loss};
  save_seconds_ = std::max(save_seconds_, steady_seconds() - begun);
  folder_.say("best so far: saved " + path);
  folder_.status(status("running"));
}

}  // namespace annulus
