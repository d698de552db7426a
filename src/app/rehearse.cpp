#include "app/commands.h"
#include "train/memory_plan.h"
#include "train/planning.h"
#include "train/rehearsal.h"
#include "train/setup.h"

namespace annulus {
namespace {

/// Where the processes stand: they are the job, or the first of them is rank `first` of a pretended one.
struct Seats {
  bool pretended = false;
  int ranks = 1, first = 0, per_node = 0;
  double bandwidth = 0, network = 0;
};

Seats take_seats(Program& program) {
  constexpr int kPerNode = 8;  // ranks of a full node
  std::vector<std::string>& args = program.arguments;
  const int started = program.world.size();
  const auto ranks = static_cast<int>(take_number(args, "--ranks", 0, 1));
  const std::int64_t first = take_number(args, "--rank", -1, 0);
  const std::int64_t per_node = take_number(args, "--ranks-per-node", 0, 1);
  Seats s{.pretended = ranks > 0,
          .ranks = ranks > 0 ? ranks : started,
          .first = first < 0 ? 0 : static_cast<int>(first),
          .per_node = per_node > 0 ? static_cast<int>(per_node) : kPerNode};
  s.bandwidth = take_real(args, "--bandwidth");
  s.network = take_real(args, "--network");
  if (!s.pretended && (first >= 0 || per_node > 0 || s.bandwidth > 0 || s.network > 0))
    usage_error(
        "--rank, --ranks-per-node, --bandwidth and --network are of a pretended job: give its --ranks");
  if (s.first >= s.ranks) usage_error("--rank must be below --ranks");
  if (s.pretended && s.first + started > s.ranks)
    usage_error(std::to_string(started) + " processes from --rank " + std::to_string(s.first) +
                " on are more than the --ranks " + std::to_string(s.ranks) + " of the job");
  return s;
}

}  // namespace

Exit run_rehearse(Program& program) {
  std::vector<std::string>& args = program.arguments;
  const Seats seats = take_seats(program);
  const std::int64_t layers = take_layers(args);
  RehearsalOptions options;
  options.steps = take_number(args, "--steps", options.steps, 1);
  options.warmup = take_number(args, "--warmup", options.warmup, 0);
  options.document = take_number(args, "--document", 0, 1);
  options.check = take_number(args, "--check", 0, 1);
  options.profile = take_flag(args, "--profile");
  // What shows of transfers that take their time is the point of them.
  options.profile = options.profile || seats.bandwidth > 0 || seats.network > 0;
  const bool json = take_flag(args, "--json");
  const auto tell = [&](const std::string& text) {
    if (!json) say(program, text);
  };
  const RunConfig run = take_config(program, Purpose::plan);

  ModelConfig model = model_config_of(run);
  if (const std::string warning = check_positions(model, run); !warning.empty()) tell(warning);
  keep_layers(model, layers);
  const int rank = seats.first + program.world.rank();
  const Grid grid = make_grid(rank, seats.ranks, run.parallel);
  if (options.check > 0 && !seats.pretended && grid.context() > 1)
    usage_error("--check knows what pretended peers hold, and real ones hold something else: give --ranks");
  const std::unique_ptr<Backend> backend = make_backend(program, run);
  tell(backend->describe());
  EngineSpec spec = make_spec(model, run, grid, compute_type(run, backend->memory().place()));
  spec.probe = options.check > 0;
  Node node = program.node;
  if (seats.pretended) {
    node = pretended_node(rank, seats.ranks, seats.per_node);
    node.host = program.node.host;
  }
  // Those who share this host's memory are the processes, whatever they pretend.
  fit_memory(spec, program.world, node, *backend, false, tell, program.node.local_size);
  const Peers peers{
      .started = program.world,
      .pretended = seats.pretended,
      .links = pretended_links({.bandwidth_gbs = seats.bandwidth, .network_gbs = seats.network}, nullptr)};
  const RehearsalReport report = rehearse(*backend, spec, node, peers, options);
  say(program, json ? rehearsal_json(report, spec, backend->peak_flops())
                    : describe(report, spec, backend->peak_flops()));
  return Exit::ok;
}

}  // namespace annulus
