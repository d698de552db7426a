#include <cstdio>
#include <thread>
#include "app/commands.h"
#include "ops/load_cuda.h"
#include "train/facts.h"
#include "train/memory_plan.h"

namespace annulus {

Exit run_info(Program& program) {
  expect_arguments(program, 0, "annulus info");
  say(program, program_version());
  char line[160];
  std::snprintf(line, sizeof line, "host %s: %u processors, %.1f GB of memory free, %d of %d ranks here",
                program.node.host.c_str(), std::thread::hardware_concurrency(),
                static_cast<double>(host_bytes_free()) * 1e-9, program.node.local_size, program.world.size());
  say(program, line);
  for (const std::string& library : library_lines()) say(program, "library " + library);
  for (const std::string& variable : environment_lines()) say(program, "environment " + variable);
  say(program, "backend " + make_cpu_backend(1)->describe());
  say(program, cuda_status());
  return Exit::ok;
}

}  // namespace annulus
