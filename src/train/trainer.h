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
#include "train/engine.h"
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
  double loss = 0;        // mean over the step's targets; 0 when it has none
  double grad_norm = 0;   // before clipping
  double lr = 0;
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
  bool snapshot_fits();
  /// Ends the save that is under way: when its bytes are written, or at once if `now`.
  void finish_behind(bool now);
  std::map<std::string, std::string> facts();
  void saved(const std::string& path, std::int64_t step, double begun);
  void run_evaluation();
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
  Progress progress_;
  StepReport report_;
  std::int64_t first_step_ = 0;   // where this life began
  std::int64_t saved_step_ = -1;  // whose checkpoint is on disk
  std::unique_ptr<BackgroundSave> behind_;
  std::int64_t behind_step_ = -1;  // whose checkpoint is under way
  double behind_begun_ = 0;
  int snapshot_fits_ = -1;  // -1: not asked yet
  std::int64_t evaluated_step_ = -1;
  Stop stop_ = Stop::none;
  bool gradients_written_ = false;
  std::deque<double> recent_;  // seconds of the last steps
  double save_seconds_ = 0;    // of the longest save; before the first an estimate
  double last_save_ = 0;       // when, by the steady clock
  std::string eval_json_;      // what the step's evaluation adds to its line
};

}  // namespace annulus
