// Ends a run that makes no progress, so that nothing hangs until the allocation ends.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace annulus {

/// A thread that looks once a second. When a phase shows no sign of life for `seconds` it prints one line
/// that names rank, host, step and phase, and ends the process with code 1; the launcher then ends the
/// others. Time for which the process was suspended (SIGSTOP, scontrol suspend) does not count.
class Watchdog {
 public:
  Watchdog(double seconds, std::string host);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;

  /// A new phase ("load", "first step", "step", "save"), a string literal.
  void enter(const char* phase, std::int64_t step);
  /// A sign of life within the phase: a layer done, a slab read.
  void beat();
  /// Outside all phases: nothing is watched.
  void rest() { enter(nullptr, 0); }

 private:
  void watch();
  double seconds_;
  std::string host_;
  std::atomic<const char*> phase_{nullptr};
  std::atomic<std::int64_t> step_{0};
  std::atomic<double> last_{0};
  std::mutex mutex_;
  std::condition_variable ends_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace annulus
