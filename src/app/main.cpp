// annulus SUBCOMMAND ...: starts MPI, runs the subcommand, and turns what went wrong into one sentence and an
// exit code.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <set>
#include "app/commands.h"
#include "config/values.h"
#include "ops/cpu/queue.h"
#include "train/facts.h"
#include "train/run_folder.h"
#include "train/stop.h"

namespace annulus {
namespace {

void print_help() {
  std::printf("usage: annulus SUBCOMMAND ...\n\n");
  for (const Command& c : commands()) std::printf("  %-9s %s\n", c.name, c.summary);
  std::printf(
      "\nannulus SUBCOMMAND --help says more. Exit codes: 0 done, 2 usage or configuration, 3 content of an\n"
      "input file, 4 environment, 75 stopped with a checkpoint (run again), 1 anything else.\n");
}

void print_help(const Command& c) {
  std::printf("%s\n", c.usage);
  if (c.keys)
    std::printf("\nKeys, in a file as [section] and key = value, or as flags:\n\n%s", config_help().c_str());
}

const Command* find_command(const std::string& name) {
  for (const Command& c : commands())
    if (name == c.name) return &c;
  return nullptr;
}

[[noreturn]] void unknown_command(const std::string& name) {
  const Command* nearest = &commands().front();
  for (const Command& c : commands())
    if (edit_distance(name, c.name) < edit_distance(name, nearest->name)) nearest = &c;
  usage_error("\"" + name + "\" is not a subcommand; the nearest is " + nearest->name +
              " (annulus --help lists all)");
}

/// The launcher's word on the number of tasks, read before MPI starts; 0 when there is none to trust. Under
/// mpirun Slurm's figures are those of its daemons.
long slurm_tasks() {
  const char* step = std::getenv("SLURM_STEP_ID");
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  const bool by_mpirun = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
  return step != nullptr && tasks != nullptr && !by_mpirun ? std::atol(tasks) : 0;
}

Node find_node(const MpiSession& session, Comm& world) {
  Node node{.host = host_name(),
            .index = 0,
            .local_rank = session.local_rank(),
            .local_size = session.local_size()};
  std::set<std::string> before;
  for (const std::string& host : world.all_gather(node.host)) {
    if (host == node.host) break;
    before.insert(host);
  }
  node.index = static_cast<int>(before.size());
  return node;
}

Exit run(MpiSession& session, Comm& world, long tasks, const std::vector<std::string>& args) {
  if (tasks > 0 && tasks != session.size())
    environment_error("Slurm started " + std::to_string(tasks) + " tasks and MPI sees " +
                      std::to_string(session.size()) +
                      ": MPI was not started through Slurm; use srun --mpi=pmix, or mpirun inside the job");
  const Command* command = find_command(args[0]);
  if (command == nullptr) unknown_command(args[0]);
  Program program{session, world, find_node(session, world), {args.begin() + 1, args.end()}, 0};
  program.node.step = &program.step;
  return command->run(program);
}

/// The sentence once for what all ranks found; otherwise from the rank that found it, which ends the job.
Exit report(const MpiSession& session, const Error& e) {
  if (!e.everywhere) end_job(session, e);
  if (session.rank() == 0) std::fprintf(stderr, "annulus: %s\n", e.what());
  std::fflush(nullptr);
  return e.code;
}

Exit guarded(MpiSession& session, long tasks, const std::vector<std::string>& args) {
  try {
    CpuQueue queue;  // the group of all ranks works on host memory alone
    const std::unique_ptr<Comm> world = session.world(queue);
    return run(session, *world, tasks, args);
  } catch (const Error& e) {
    return report(session, e);
  } catch (const std::bad_alloc&) {
    return report(session, Error(Exit::environment,
                                 "rank " + std::to_string(session.rank()) + " on " + host_name() +
                                     ": out of host memory; use more hosts or a smaller job",
                                 false));
  } catch (const std::exception& e) {
    return report(session,
                  Error(Exit::bug, "rank " + std::to_string(session.rank()) + ": " + e.what(), false));
  }
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) {
  using namespace annulus;
  const std::vector<std::string> args(argv + 1, argv + argc);
  const auto asks = [&](std::size_t at, const char* what) { return args.size() > at && args[at] == what; };
  if (args.empty() || asks(0, "--help") || asks(0, "-h") || asks(0, "help")) {
    print_help();
    return args.empty() ? static_cast<int>(Exit::usage) : 0;
  }
  if (asks(0, "--version")) {
    std::printf("%s\n", program_version().c_str());
    return 0;
  }
  if (const Command* command = find_command(args[0]);
      command != nullptr && std::count(args.begin(), args.end(), "--help") > 0) {
    print_help(*command);
    return 0;
  }
  // A training run saves when it is told to stop; every other subcommand may simply die of the signal.
  if (args[0] == "train") install_stop_signals();
  const long tasks = slurm_tasks();
  MpiSession session(&argc, &argv);
  return static_cast<int>(guarded(session, tasks, args));
}
