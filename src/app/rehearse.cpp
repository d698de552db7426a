#include <charconv>
#include "app/commands.h"
#include "train/memory_plan.h"
#include "train/rehearsal.h"
#include "train/setup.h"

namespace annulus {
namespace {

/// Takes `--name VALUE` out of the arguments; `missing` when it is not there.
std::int64_t take_number(std::vector<std::string>& arguments, const std::string& name, std::int64_t missing,
                         std::int64_t least) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] != name) continue;
    std::int64_t value = 0;
    const std::string text = i + 1 < arguments.size() ? arguments[i + 1] : "";
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least)
      usage_error(name + " is \"" + text + "\": it must be a whole number from " + std::to_string(least) +
                  " on");
    arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i),
                    arguments.begin() + static_cast<std::ptrdiff_t>(i) + 2);
    return value;
  }
  return missing;
}

bool take_flag(std::vector<std::string>& arguments, const std::string& name) {
  return std::erase(arguments, name) > 0;
}

}  // namespace

Exit run_rehearse(Program& program) {
  if (program.world.size() > 1)
    usage_error("rehearse pretends its peers: start it as one process, without mpirun or srun -n");
  std::vector<std::string>& args = program.arguments;
  const auto ranks = static_cast<int>(take_number(args, "--ranks", 1, 1));
  const auto rank = static_cast<int>(take_number(args, "--rank", 0, 0));
  const std::int64_t layers = take_number(args, "--layers", 0, 1);
  RehearsalOptions options;
  options.steps = take_number(args, "--steps", options.steps, 1);
  options.warmup = take_number(args, "--warmup", options.warmup, 0);
  options.document = take_number(args, "--document", 0, 1);
  options.check = take_number(args, "--check", 0, 1);
  options.profile = take_flag(args, "--profile");
  if (rank >= ranks) usage_error("--rank must be below --ranks");
  RunConfig run = parse_run_config(args);
  validate(run, Purpose::plan);

  ModelConfig model = model_config_of(run);
  if (layers > 0) {
    if (layers > model.L)
      usage_error("--layers is beyond the model's " + std::to_string(model.L) + " layers");
    model.L = layers;
    model.windows.resize(static_cast<std::size_t>(layers));
  }
  const Grid grid =
      make_grid(rank, ranks, static_cast<int>(run.parallel.context), static_cast<int>(run.parallel.ulysses));
  const std::unique_ptr<Backend> backend = make_backend(program, run);
  say(program, backend->describe());
  EngineSpec spec = make_spec(model, run, grid, compute_type(run, backend->memory().place()));
  spec.probe = options.check > 0;
  const Node& node = program.node;
  fit_memory(spec, program.world, node, *backend, false,
             [&](const std::string& text) { say(program, text); });
  const RehearsalReport report = rehearse(*backend, spec, node, options);
  say(program, describe(report, spec, backend->peak_flops()));
  return Exit::ok;
}

}  // namespace annulus
