#include "io/fault.h"
#include <charconv>
#include <csignal>
#include "core/check.h"
#include "io/file.h"

namespace annulus {
namespace {

struct Fault {
  std::string phase, mode;
  int rank = -1;
};

Fault parse(const std::string& spec) {
  Fault f;
  const std::size_t first = spec.find(':');
  const std::size_t second = first == std::string::npos ? first : spec.find(':', first + 1);
  f.phase = spec.substr(0, first);
  if (second != std::string::npos) f.mode = spec.substr(second + 1);
  bool good = !f.phase.empty() && first != std::string::npos;
  if (good) {
    const std::string digits =
        spec.substr(first + 1, second == std::string::npos ? second : second - first - 1);
    const auto end = digits.data() + digits.size();
    const auto got = std::from_chars(digits.data(), end, f.rank);
    good = got.ec == std::errc{} && got.ptr == end && f.rank >= 0 &&
           (second == std::string::npos || f.mode == "kill" || f.mode == "enospc");
  }
  if (!good)
    usage_error("debug.fail is '" + spec + "'; it must be PHASE:RANK, PHASE:RANK:kill or PHASE:RANK:enospc");
  return f;
}

}  // namespace

void check_fault_spec(const std::string& spec) {
  if (!spec.empty()) parse(spec);
}

void inject_fault(const std::string& spec, std::string_view phase, int rank, const std::string& path,
                  std::int64_t bytes_needed) {
  if (spec.empty()) return;
  const Fault f = parse(spec);
  if (f.phase != phase || f.rank != rank) return;
  if (f.mode == "kill" && std::raise(SIGKILL) != 0) fail("raise(SIGKILL)", "the signal was not sent");
  if (f.mode == "enospc") disk_full(path, bytes_needed);
  environment_error("debug.fail asked rank " + std::to_string(rank) + " to fail at '" + std::string(phase) +
                    "' while writing " + path + "; remove that key to go on");
}

}  // namespace annulus
