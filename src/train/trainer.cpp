#include "train/trainer.h"
#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include "io/fault.h"
#include "train/adapters.h"
#include "train/clock.h"
#include "train/facts.h"
#include "train/hf_folder.h"
#include "train/memory_plan.h"
#include "train/metrics.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

}  // namespace

Trainer::Trainer(Comm& world, const Node& node, Backend& backend, const RunConfig& run)
    : world_(world),
      node_(node),
      backend_(backend),
      run_(run),
      grid_(make_grid(world.rank(), world.size(), run.parallel)),
      folder_(world, run.run.dir),
      watchdog_(run.run.stall_seconds, node.host) {
  try {
    open();
  } catch (const Error& e) {
    // An earlier life's reason must not stay: scripts decide by it whether to run again.
    folder_.status({.reason = std::string("error: ") + e.what()});
    throw;
  }
}

void Trainer::open() {
  const Watchdog::Phase phase(watchdog_, "load", 0);
  behind_ = std::make_unique<BackgroundSave>(backend_);
  check_fault_spec(run_.debug.fail);
  model_ = open_model(run_);
  start_ = open_start(model_.config, run_);
  if (const std::string warning = check_positions(model_.config, run_); !warning.empty())
    folder_.say(warning);
  const LoraConfig lora = lora_config(run_.lora, model_.config);
  model_print_ = model_fingerprint(model_.config, make_units(model_.config, lora));
  base_print_ = base_fingerprint(world_, model_, run_);
  if (start_) check_adapters(*start_, model_.config, lora, run_.checkpoint.resume);
  EngineSpec spec = make_spec(model_.config, run_, grid_, compute_type(run_, backend_.memory().place()));

  std::string from_path;
  const std::unique_ptr<H5Reader> from = find_checkpoint(&from_path);
  open_data(from.get(), from_path);
  watchdog_.beat();
  if (from) check_same_run(*from, from_path, run_, model_print_, data_print_);
  if (from && lora.rank > 0) check_base(from->facts(), from_path, base_print_, run_.model.path);

  folder_.say(std::to_string(data_->rows()) + " rows of " + std::to_string(run_.data.sequence) + " tokens, " +
              std::to_string(plan_->rows_per_step()) + " a step over " + std::to_string(grid_.data) +
              " data group(s) of " + std::to_string(grid_.context()) +
              " rank(s): " + std::to_string(plan_->total()) + " steps");
  if (lora.rank > 0) folder_.say(describe_adapters(model_.config, lora));
  fit_memory(spec, world_, node_, backend_, eval_data_ != nullptr,
             [this](const std::string& line) { folder_.say(line); });
  engine_ = build_engine(
      world_, node_, backend_, spec, eval_data_ != nullptr, [this] { agree_on_stop(0); },
      [this](const std::string& line) { folder_.say(line); });
  if (more()) check_space(folder_.path("checkpoints"));
  fill_weights(from.get(), from_path);
  open_best();

  first_step_ = progress_.step;
  // A checkpoint of another folder is not this run's own.
  saved_step_ = from && from_path == folder_.checkpoint(progress_.step) ? progress_.step : -1;
  save_seconds_ = 1.0 + static_cast<double>(state_bytes(*engine_)) / 3e8;
  last_save_ = steady_seconds();
  const std::string facts = facts_text(world_, node_.host, backend_.describe());
  agreed(world_, "writing the run folder", [&] {
    folder_.write("config.ini", print_config(run_));
    folder_.write("facts.txt", facts);
    folder_.open_metrics(progress_.step);
    folder_.status(status("running"));
  });
}

Trainer::~Trainer() = default;

std::unique_ptr<H5Reader> Trainer::find_checkpoint(std::string* path) {
  const std::string folder = folder_.path("checkpoints");
  const auto say = [this](const std::string& line) { folder_.say(line); };
  // A run that started from adapters goes on from its own checkpoints.
  if (run_.checkpoint.resume == "auto" || start_) return newest_checkpoint(world_, folder, say, path);
  if (run_.checkpoint.resume == "none") {
    const std::vector<CheckpointFile> there = list_checkpoints(folder);
    if (!there.empty())
      usage_error(run_.run.dir + " holds checkpoints of an earlier run (step " +
                  std::to_string(there.front().step) +
                  "): give another run.dir, or checkpoint.resume=auto to go on with it");
    return nullptr;
  }
  *path = run_.checkpoint.resume;
  std::unique_ptr<H5Reader> reader = open_h5(*path);
  reader->verify(world_);
  return reader;
}

void Trainer::open_data(const H5Reader* from, const std::string& from_path) {
  if (run_.data.train.empty())
    usage_error("data.train is not set: give text files, JSONL files or one token file (.h5)");
  data_ = std::make_unique<Dataset>(
      world_,
      token_file_of(world_, run_.data.train, run_, model_.config, folder_.path("tokens.h5"), from != nullptr),
      run_.data, model_.config.V);
  if (data_->rows() == 0) input_error("data.train holds no row: its documents are empty");
  data_print_ = data_fingerprint(world_, data_->file());
  folder_.say(data_->describe());
  if (!run_.data.eval.empty()) {
    eval_data_ = std::make_unique<Dataset>(
        world_,
        token_file_of(world_, run_.data.eval, run_, model_.config, folder_.path("tokens-eval.h5"), false),
        run_.data, model_.config.V);
    folder_.say(eval_data_->describe());
  }
  progress_.rows_per_step = run_.train.rows > 0 ? run_.train.rows : grid_.data;
  if (from != nullptr) progress_ = progress_of(*from, from_path);
  plan_ = std::make_unique<StepPlan>(data_->rows(), progress_.rows_per_step, run_.data, run_.train);
}

void Trainer::fill_weights(H5Reader* from, const std::string& from_path) {
  Staging staging(backend_);
  const auto beat = [this] { watchdog_.beat(); };
  fill_engine(world_, *engine_, model_.weights.get(), from, start_.get(), staging, true, beat);
  if (from != nullptr)
    folder_.say("resumed from " + from_path + " at step " + std::to_string(progress_.step) + " of " +
                std::to_string(plan_->total()));
  else if (start_)
    folder_.say("started from the adapters of " + run_.checkpoint.resume);
}

std::map<std::string, std::string> Trainer::weight_facts() const {
  if (run_.lora.rank > 0) return adapter_facts(run_, model_.config, base_print_);
  return source_facts(model_, run_.model.path, engine_->state().units());
}

bool Trainer::more() const {
  return stop_ == Stop::none && !gradients_written_ && progress_.step < plan_->total();
}

Status Trainer::status(const std::string& reason) const {
  return {.reason = reason,
          .step = progress_.step,
          .first_step = first_step_,
          .total = plan_->total(),
          .best = best_};
}

void Trainer::ended(const std::string& reason) {
  folder_.status(status(reason));
}

void Trainer::agree_on_stop(double work) {
  watchdog_.beat();
  Stop mine = signal_received();
  // Rank 0's clock decides for all. A save that is under way ends before the last one begins.
  const double end =
      static_cast<double>(std::time(nullptr)) + work + save_seconds_ * (behind_->active() ? 2 : 1);
  if (mine == Stop::none && world_.rank() == 0 && run_.run.until > 0 &&
      end > static_cast<double>(folder_.until(run_.run.until)))
    mine = Stop::time_limit;
  const auto all = static_cast<Stop>(world_.max(static_cast<std::int64_t>(mine)));
  if (all != Stop::none) throw Stopped{all};
}

void Trainer::run_evaluation() {
  if (!eval_data_ || evaluated_step_ == progress_.step) return;
  const Watchdog::Phase phase(watchdog_, "evaluation", progress_.step);
  const EvalResult r = evaluate(world_, *engine_, *eval_data_);
  evaluated_step_ = progress_.step;
  folder_.say("step " + std::to_string(progress_.step) + "  " + eval_line(r));
  for (const std::string& line : position_lines(r)) folder_.say(line);
  keep_best(r.loss);
  eval_json_ = eval_fields(r, best_);
}

Exit Trainer::finish() {
  if (stop_ != Stop::none) {
    ended(name_of(stop_));
    folder_.say("stopped by " + std::string(name_of(stop_)) + " after step " +
                std::to_string(progress_.step) + " of " + std::to_string(plan_->total()) +
                "; run again to go on");
    return Exit::requeue;
  }
  if (!gradients_written_) {
    save();
    export_model();
  }
  ended("done");
  return Exit::ok;
}

void Trainer::export_model() {
  if (run_.checkpoint.final == "none") return;
  const Watchdog::Phase phase(watchdog_, "export", progress_.step);
  const std::string kind = run_.lora.rank > 0 ? "adapter" : "model";
  if (run_.checkpoint.final == "h5") {
    const std::string path = folder_.path(kind + ".h5");
    std::map<std::string, std::string> facts = weight_facts();
    facts["config_json"] = model_.config.json;
    save_weights(world_, *engine_, path, std::move(facts));
    folder_.say("wrote " + path);
    return;
  }
  const std::string folder = folder_.path(kind);
  std::int64_t there = world_.rank() == 0 && fs::exists(folder) ? 1 : 0;
  if (world_.max(there) > 0) {
    folder_.say(folder + " is there already and was left as it is");
    return;
  }
  export_folder(world_, folder_.checkpoint(progress_.step), folder, [this] { watchdog_.beat(); });
  folder_.say("wrote " + folder);
}

}  // namespace annulus
