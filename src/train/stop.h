// Why a run ends before its last step. Signals only set flags; the ranks agree on them at every layer edge.
#pragma once
#include <cstdint>

namespace annulus {

/// Ordered: when ranks report different ones the greatest is the reason.
enum class Stop : std::int64_t { none = 0, time_limit = 1, sigusr1 = 2, sigterm = 3 };
const char* name_of(Stop);  // as status.json has it: "time limit", "SIGUSR1", "SIGTERM"

/// Handlers of SIGUSR1 and SIGTERM. Called before MPI starts, so that no signal finds the default action.
void install_stop_signals();
/// What this process has been sent so far.
Stop signal_received();
/// Forgets it: a test that goes on after a stop.
void clear_stop_signals();

/// Thrown on every rank at once, at a layer edge: the step is dropped, the last whole step's state is saved.
struct Stopped {
  Stop why;
};

}  // namespace annulus
