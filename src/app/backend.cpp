#include <algorithm>
#include <thread>
#include "app/commands.h"
#include "ops/load_cuda.h"

namespace annulus {
namespace {

/// What device.kind=auto takes: a GPU where every rank has one.
bool all_have_gpus(Program& program) {
  return program.world.max(cuda_probe().missing.empty() ? 0 : 1) == 0;
}

}  // namespace

std::unique_ptr<Backend> make_backend(Program& program, const RunConfig& run) {
  if (run.device.kind == "cuda" || (run.device.kind == "auto" && all_have_gpus(program)))
    return load_cuda_backend({.rank = program.world.rank(),
                              .local_rank = program.node.local_rank,
                              .local_size = program.node.local_size,
                              .share = run.device.share,
                              .deterministic = run.device.deterministic,
                              .stall_seconds = run.run.stall_seconds,
                              .step = &program.step,
                              .abort = [&session = program.session](Exit code) { session.abort(code); }});
  // The ranks of a host share its processors.
  const int processors = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return make_cpu_backend(std::max(1, processors / program.node.local_size));
}

}  // namespace annulus
