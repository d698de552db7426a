// One config and one program on all ranks, or none.
#include <sstream>
#include "app/commands.h"
#include "train/facts.h"

namespace annulus {
namespace {

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
  // Version and host on a line each, and the config.
  std::vector<std::string> versions, hosts, configs;
  for (const std::string& theirs :
       program.world.all_gather(program_version() + ", build " + program_build_id() + "\n" +
                                program.node.host + "\n" + print_config(run))) {
    std::istringstream text(theirs);
    std::getline(text, versions.emplace_back());
    std::getline(text, hosts.emplace_back());
    configs.push_back(theirs.substr(static_cast<std::size_t>(text.tellg())));
  }
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
