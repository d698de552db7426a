// What a run ran on: facts.txt, and the same lines for `annulus info`.
#pragma once
#include <string>
#include <vector>
#include "comm/comm.h"

namespace annulus {

/// "annulus 0.1.0 (commit abc1234)".
std::string program_version();
/// The linker's hash of this program, in hexadecimal: the same commit can be built twice. "none" where it was
/// linked without.
std::string program_build_id();
/// One line a library that is loaded: name, version, path.
std::vector<std::string> library_lines();
/// NAME=value of the set environment variables of NCCL, Open MPI, BLAS, OpenMP and Slurm that are known to
/// matter; never the whole environment.
std::vector<std::string> environment_lines();
/// facts.txt: version, device, hosts, libraries, environment. Collective.
std::string facts_text(Comm& world, const std::string& host, const std::string& device);

}  // namespace annulus
