#include <algorithm>
#include <thread>
#include "app/commands.h"

namespace annulus {

std::unique_ptr<Backend> make_backend(const Program& program, const RunConfig& run) {
  if (run.device.kind == "cuda")
    environment_error("device.kind=cuda: this build has no CUDA backend; build with -DANNULUS_CUDA=ON, or take "
                      "device.kind=cpu");
  // The ranks of a host share its processors.
  const int processors = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return make_cpu_backend(std::max(1, processors / program.node.local_size));
}

}  // namespace annulus
