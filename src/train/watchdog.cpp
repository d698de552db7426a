#include "train/watchdog.h"
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include "core/check.h"
#include "train/clock.h"

namespace annulus {
Watchdog::Watchdog(double seconds, std::string host) : seconds_(seconds), host_(std::move(host)) {
  last_ = steady_seconds();
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

void Watchdog::enter(const char* phase, std::int64_t step) {
  last_ = steady_seconds();
  step_ = step;
  phase_ = phase;
}

void Watchdog::beat() {
  last_ = steady_seconds();
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    const double before = steady_seconds();
    ends_.wait_for(lock, std::chrono::seconds(1));
    // A second that took so long: this process was suspended, and the time does not count.
    if (steady_seconds() - before > 2.5) last_ = steady_seconds();
    const char* phase = phase_;
    if (over_ || phase == nullptr || steady_seconds() - last_ < seconds_) continue;
    std::fprintf(
        stderr,
        "annulus: rank %d on %s: no progress for %.0f s in phase \"%s\" of step %lld; the job ends here: "
        "look for a rank that died or a file system that hangs, or raise run.stall_seconds\n",
        g_rank_for_messages, host_.c_str(), seconds_, phase, static_cast<long long>(step_.load()));
    std::fflush(nullptr);
    // The other ranks stall in the same moment: a second lets all of them say where they are.
    std::this_thread::sleep_for(std::chrono::seconds(1));
    std::_Exit(static_cast<int>(Exit::bug));
  }
}

}  // namespace annulus
