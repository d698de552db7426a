// One config and one program on all ranks, or none.
#include <fstream>
#include <sstream>
#include "app/commands.h"
#include "train/facts.h"
#include "train/snapshot.h"

namespace annulus {
namespace {

/// Of the program file that this process runs; the same commit can be built twice.
std::string program_print() {
  std::ifstream in("/proc/self/exe", std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  return fingerprint(bytes.str());
}

/// The first line in which two configs differ, of each.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  std::string x, y, section;
  for (;;) {
    const bool more_x = static_cast<bool>(std::getline(left, x));
    const bool more_y = static_cast<bool>(std::getline(right, y));
    if (!more_x) x.clear();
    if (!more_y) y.clear();
    if (x != y || (!more_x && !more_y)) return {section + x, section + y};
    if (x.starts_with("[")) section = x + " ";
  }
}

}  // namespace

RunConfig take_config(Program& program, Purpose purpose) {
  RunConfig run;
  agreed(program.world, "reading the configuration", [&] {
    run = parse_run_config(program.arguments);
    validate(run, purpose);
  });
  const std::string version = program_version() + ", file " + program_print();
  const std::vector<std::string> versions = program.world.all_gather(version);
  const std::vector<std::string> configs = program.world.all_gather(print_config(run));
  const std::vector<std::string> hosts = program.world.all_gather(program.node.host);
  for (std::size_t r = 1; r < versions.size(); ++r) {
    const std::string where = "rank " + std::to_string(r) + " on host " + hosts[r];
    if (versions[r] != versions[0])
      environment_error(where + " runs " + versions[r] + " and rank 0 on host " + hosts[0] + " runs " +
                        versions[0] + "; install one program on all hosts and load one module");
    const auto [first, theirs] = first_difference(configs[0], configs[r]);
    if (first != theirs)
      environment_error(where + " has another configuration than rank 0: \"" + theirs + "\", not \"" + first +
                        "\"; give all ranks the same file and flags");
  }
  return run;
}

}  // namespace annulus
