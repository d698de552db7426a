// A training run: written once against Backend, Comm, Arena, ShardedState, Model and Dataset.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <string>
#include "comm/comm.h"
#include "config/run_config.h"
#include "data/dataset.h"
#include "train/background_save.h"
#include "train/diverged.h"
#include "train/engine.h"
#include "train/evaluation.h"
#include "train/run_folder.h"
#include "train/setup.h"
#include "train/snapshot.h"
#include "train/step_plan.h"
#include "train/stop.h"
#include "train/watchdog.h"

namespace annulus {

/// What one step gave.
struct StepReport {
  std::int64_t step = 0;  // counted from 1
  double loss = 0;        // what is minimised: the mean over the step's targets, and the auxiliary loss
  double grad_norm = 0;   // before clipping
  bool experts = false;   // the model has some, and the two below mean something
  double aux_loss = 0;  // mean over the step's rows, weighted by their tokens; times its coefficient in loss
  double expert_load_max = 0;  // choices of a layer's most chosen expert over those of the mean one
  double lr = 0;
  double accuracy = 0, entropy = 0;      // means over the step's targets, before the update
  std::int64_t tokens = 0, targets = 0;  // of this step
  double epoch = 0;                      // epochs passed
  double seconds = 0;
  double flops = 0;  // of the model, all ranks together
};

class Trainer {
 public:
  /// Opens model, data and run folder; plans and takes memory; reads weights or the checkpoint to go on from.
  /// Collective over `world` (its host face).
  Trainer(Comm& world, const Node&, Backend&, const RunConfig&);
  ~Trainer();

  /// False after the last step, a stop, or when debug.gradients is done.
  bool more() const;
  /// One optimizer step with what is due at its edge (evaluation, checkpoint). A stop drops the unfinished
  /// step and saves the state of the last whole one.
  void step();
  /// Saves, evaluates and exports what is due at the end; says how the process is to end.
  Exit finish();

  const StepReport& report() const { return report_; }
  std::int64_t steps_done() const { return progress_.step; }
  std::int64_t total_steps() const { return plan_->total(); }
  Engine& engine() { return *engine_; }
  /// Writes why the run ended into status.json.
  void ended(const std::string& reason);

 private:
  void open();
  void open_data(const H5Reader* from, const std::string& from_path);
  std::unique_ptr<H5Reader> find_checkpoint(std::string* path);
  void fill_weights(H5Reader* from, const std::string& from_path);
  /// What a file of this run's weights remembers of where they belong.
  std::map<std::string, std::string> weight_facts() const;
  void run_step();
  std::vector<LocalRow> read_rows(const StepRows&);
  void write_gradients();
  void record(const StepReport&);
  void at_edge();
  /// Throws Stopped on all ranks when one was told to stop, or when `work` more seconds and a save would pass
  /// run.until.
  void agree_on_stop(double work);
  void check_space(const std::string& checkpoints);
  /// The state of the last whole step, on the disk when it returns.
  void save();
  /// Begins a save beside the training where checkpoint.background allows, else the same as save().
  void save_behind();
  /// Ends the save that is under way: when its bytes are written, or at once if `now`.
  void finish_behind(bool now);
  std::map<std::string, std::string> facts();
  void saved(const std::string& path, std::int64_t step, double begun);
  void run_evaluation();
  /// Reads which evaluation RUN/best.h5 comes from, if it is there and of this data.
  void open_best();
  /// The weights go to RUN/best.h5 when no evaluation before had a lower loss.
  void keep_best(double loss);
  [[noreturn]] void diverged(const StepReport&, const std::string& where);
  void export_model();
  Status status(const std::string& reason) const;

  Comm& world_;
  Node node_;
  Backend& backend_;
  RunConfig run_;
  Grid grid_;
  RunFolder folder_;
  Watchdog watchdog_;
  ModelSource model_;
  std::unique_ptr<WeightSource> start_;  // adapters to start from; null: none given
  std::unique_ptr<Dataset> data_, eval_data_;
  std::unique_ptr<StepPlan> plan_;
  std::unique_ptr<Engine> engine_;
  std::string model_print_, data_print_, base_print_;
  std::string eval_print_;  // fingerprint of data.eval, with checkpoint.best
  Best best_;
  Progress progress_;
  StepReport report_;
  std::int64_t first_step_ = 0;   // where this life began
  std::int64_t saved_step_ = -1;  // whose checkpoint is on disk
  std::unique_ptr<BackgroundSave> behind_;
  std::int64_t evaluated_step_ = -1;
  Stop stop_ = Stop::none;
  bool gradients_written_ = false;
  std::deque<double> recent_;  // seconds of the last steps
  double save_seconds_ = 0;    // of the longest save; before the first an estimate
  double last_save_ = 0;       // when, by the steady clock
  std::string eval_json_;      // what the step's evaluation adds to its line
};

}  // namespace annulus
