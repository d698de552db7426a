#include <unistd.h>
#include <cstdio>
#include <filesystem>
#include "app/commands.h"
#include "train/adapters.h"
#include "train/evaluation.h"
#include "train/run_folder.h"
#include "train/setup.h"
#include "train/snapshot.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

/// Where tokens of data.eval go for the time of the evaluation: beside a training run that may be going on.
std::string scratch_path(Comm& world, const std::string& folder) {
  std::string path;
  agreed(world, "making the run folder", [&] {
    if (world.rank() != 0) return;
    std::error_code error;
    fs::create_directories(folder, error);
    if (error)
      environment_error("cannot create the run folder " + folder + ": " + error.message() +
                        "; give a run.dir that can be written");
    path = folder + "/tokens-eval-" + host_name() + "-" + std::to_string(getpid()) + ".h5";
  });
  world.broadcast(path, 0);
  return path;
}

/// The checkpoint whose weights are wanted; null: those of model.path.
std::unique_ptr<H5Reader> find_weights(const Program& program, const RunConfig& run, std::string* path) {
  if (run.checkpoint.resume == "none") return nullptr;
  if (run.checkpoint.resume != "auto") {
    *path = run.checkpoint.resume;
    return open_h5(*path);
  }
  return newest_checkpoint(
      program.world, run.run.dir + "/checkpoints", [&](const std::string& line) { say(program, line); },
      path);
}

}  // namespace

Exit run_eval(Program& program) {
  const bool print = take_print_config(program.arguments);
  RunConfig run = take_config(program, Purpose::eval);
  if (print) {
    say(program, print_config(run));
    return Exit::ok;
  }
  if (run.data.eval.empty()) usage_error("data.eval is not set: give the files to evaluate on");
  Comm& world = program.world;
  const Grid grid = make_grid(world.rank(), world.size(), run.parallel);
  const std::unique_ptr<Backend> backend = make_backend(program, run);
  const ModelSource model = open_model(run);
  const std::unique_ptr<WeightSource> adapters = open_start(model.config, run);
  std::string path = adapters ? run.checkpoint.resume : run.model.path;
  const std::unique_ptr<H5Reader> from = adapters ? nullptr : find_weights(program, run, &path);
  if (from) settle_lora(*from, model.config, path, run);
  if (!from && !adapters) run.lora = {};  // adapters that nobody has trained add nothing
  if (const std::string warning = check_positions(model.config, run); !warning.empty()) say(program, warning);
  if (adapters) check_adapters(*adapters, model.config, lora_config(run.lora, model.config), path);
  const std::string base_print = base_fingerprint(world, model, run);
  if (from && run.lora.rank > 0) check_base(from->facts(), path, base_print, run.model.path);
  if (!from && !model.weights)
    input_error("there are no weights to evaluate: model.init=random, and " + run.run.dir +
                " holds no checkpoint");

  EngineSpec spec = make_spec(model.config, run, grid, compute_type(run, backend->memory().place()));
  spec.frozen = true;
  const std::unique_ptr<Engine> engine = build_engine(
      world, program.node, *backend, spec, true, [] {}, [&](const std::string& line) { say(program, line); });
  Staging staging(*backend);
  fill_engine(world, *engine, model.weights.get(), from.get(), adapters.get(), staging, false, [] {});

  const std::string scratch = scratch_path(world, run.run.dir);
  const std::string tokens = token_file_of(world, run.data.eval, run, model.config, scratch, false);
  EvalResult result;
  {
    Dataset data(world, tokens, run.data, model.config.V);
    result = evaluate(world, *engine, data);
  }
  if (tokens == scratch && world.rank() == 0 && unlink(scratch.c_str()) != 0)
    std::fprintf(stderr, "annulus: warning: cannot remove %s\n", scratch.c_str());
  say(program, "weights of " + path);
  say(program, eval_line(result));
  for (const std::string& line : position_lines(result)) say(program, line);
  return Exit::ok;
}

}  // namespace annulus
