// One way to fail: a sentence that says what was wrong, where, and what would mend it, with the exit code
// the process is to end with.
#pragma once
#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace annulus {

/// Exit codes of the program. `busy` asks Slurm to requeue: the run stopped early, with a checkpoint.
enum class Exit : int { ok = 0, bug = 1, usage = 2, input = 3, environment = 4, requeue = 75 };

/// `everywhere` is true when every rank throws the same error at the same place (a wrong config, an agreed
/// failure): rank 0 prints it and all finalize. Otherwise the rank that found it prints it and aborts the
/// job.
struct Error : std::runtime_error {
  Error(Exit exit_code, std::string sentence, bool on_every_rank)
      : std::runtime_error(std::move(sentence)), code(exit_code), everywhere(on_every_rank) {}
  Exit code;
  bool everywhere;
};

inline int g_rank_for_messages = 0;  // set once, when MPI has started; printing only

/// A bug of ours or a library call that failed. The text carries rank and source location.
[[noreturn]] inline void fail(std::string_view what, std::string_view why,
                              std::source_location at = std::source_location::current()) {
  throw Error(Exit::bug,
              "rank " + std::to_string(g_rank_for_messages) + ": " + std::string(what) + ": " +
                  std::string(why) + " at " + at.file_name() + ":" + std::to_string(at.line()),
              false);
}

/// Checks what only a bug can get wrong. Stays on in release builds.
inline void need(bool ok, std::string_view why, std::source_location at = std::source_location::current()) {
  if (!ok) fail("internal check", why, at);
}

/// What the user got wrong in a command line or config (2), in files that are read (3), or what the machine
/// lacks (4). Every rank that evaluates the same arguments throws the same; errors that one rank may find
/// alone (reading its part of a file, say) go through `agreed()` in comm/comm.h.
[[noreturn]] inline void usage_error(std::string sentence) {
  throw Error(Exit::usage, std::move(sentence), true);
}
[[noreturn]] inline void input_error(std::string sentence) {
  throw Error(Exit::input, std::move(sentence), true);
}
[[noreturn]] inline void environment_error(std::string sentence) {
  throw Error(Exit::environment, std::move(sentence), true);
}

}  // namespace annulus
