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

  /// From here to the end of its life a phase ("load", "step", "save"), named by a string literal; then the
  /// one before it goes on. Outside all phases nothing is watched, so whatever waits for other ranks is in
  /// one.
  class Phase {
   public:
    Phase(Watchdog& of, const char* name, std::int64_t step)
        : of_(of), before_(of.phase_), before_step_(of.step_) {
      of_.enter(name, step);
    }
    ~Phase() { of_.enter(before_, before_step_); }
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;

   private:
    Watchdog& of_;
    const char* before_;
    std::int64_t before_step_;
  };
  /// A sign of life within the phase: a layer done, a slab read.
  void beat();

 private:
  void enter(const char* phase, std::int64_t step);
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
