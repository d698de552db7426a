// Faults on purpose (debug.fail), so that tests see what a rank's failure does to the others and to the
// files.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace annulus {

/// `spec` is "PHASE:RANK" (that rank throws), "PHASE:RANK:enospc" (it throws what a full disk would) or
/// "PHASE:RANK:kill" (it dies of SIGKILL); "" injects nothing, and phases of other names are other rooms'.
/// Phases of a save, in order:
///   create   before the file is made
///   reserve  before its space is reserved
///   write    after the rank's first slab of data, or before its end if it has none
///   digest   before the digests are joined and written
///   mark     before the completion mark
///   rename   before the file gets its final name
void inject_fault(const std::string& spec, std::string_view phase, int rank, const std::string& path,
                  std::int64_t bytes_needed);

/// Checks the form of a spec; a usage error that names debug.fail. Phase names are not checked.
void check_fault_spec(const std::string& spec);

}  // namespace annulus
