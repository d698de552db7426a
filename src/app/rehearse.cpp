#include "app/commands.h"
#include "train/memory_plan.h"
#include "train/planning.h"
#include "train/rehearsal.h"
#include "train/setup.h"

namespace annulus {

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
  PlanOptions pretended{.ranks = ranks, .rank = rank};
  pretended.bandwidth_gbs = take_real(args, "--bandwidth");
  pretended.network_gbs = take_real(args, "--network");
  // What shows of transfers that take their time is the point of them.
  options.profile = options.profile || pretended.bandwidth_gbs > 0 || pretended.network_gbs > 0;
  const std::int64_t per_node = take_number(args, "--ranks-per-node", 0, 1);
  if (rank >= ranks) usage_error("--rank must be below --ranks");
  RunConfig run = parse_run_config(args);
  validate(run, Purpose::plan);

  ModelConfig model = model_config_of(run);
  if (const std::string warning = check_positions(model, run); !warning.empty()) say(program, warning);
  if (layers > 0) {
    if (layers > model.L)
      usage_error("--layers is beyond the model's " + std::to_string(model.L) + " layers");
    model.L = layers;
    model.windows.resize(static_cast<std::size_t>(layers));
    if (!model.sparse.empty()) model.sparse.resize(static_cast<std::size_t>(layers));
  }
  const Grid grid = make_grid(rank, ranks, run.parallel);
  const std::unique_ptr<Backend> backend = make_backend(program, run);
  say(program, backend->describe());
  EngineSpec spec = make_spec(model, run, grid, compute_type(run, backend->memory().place()));
  spec.probe = options.check > 0;
  // Full nodes of the pretended job; the memory of this host is the one rank's alone.
  constexpr int kAlone = 1, kRanksPerNode = 8;
  Node node = pretended_node(rank, ranks, per_node > 0 ? static_cast<int>(per_node) : kRanksPerNode);
  node.host = program.node.host;
  fit_memory(
      spec, program.world, node, *backend, false, [&](const std::string& text) { say(program, text); },
      kAlone);
  options.links = pretended_links(pretended, nullptr);
  const RehearsalReport report = rehearse(*backend, spec, node, options);
  say(program, describe(report, spec, backend->peak_flops()));
  return Exit::ok;
}

}  // namespace annulus
