#include "train/stop.h"
#include <csignal>
#include "core/check.h"

namespace annulus {
namespace {

volatile std::sig_atomic_t g_usr1 = 0, g_term = 0;

void on_usr1(int) {
  g_usr1 = 1;
}
void on_term(int) {
  g_term = 1;
}

void install(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // a signal in the middle of a save interrupts no system call
  sigemptyset(&action.sa_mask);
  if (sigaction(signal, &action, nullptr) != 0) fail("sigaction", "signal " + std::to_string(signal));
}

}  // namespace

const char* name_of(Stop s) {
  switch (s) {
    case Stop::none:
      return "none";
    case Stop::time_limit:
      return "time limit";
    case Stop::sigusr1:
      return "SIGUSR1";
    case Stop::sigterm:
      return "SIGTERM";
  }
  return "?";
}

void install_stop_signals() {
  install(SIGUSR1, on_usr1);
  install(SIGTERM, on_term);
}

Stop signal_received() {
  if (g_term != 0) return Stop::sigterm;
  return g_usr1 != 0 ? Stop::sigusr1 : Stop::none;
}

void clear_stop_signals() {
  g_usr1 = 0;
  g_term = 0;
}

}  // namespace annulus
