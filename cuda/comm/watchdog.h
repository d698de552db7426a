// A thread that sees a collective fail or stall while everybody else waits for it, and ends the job with one
// line that says which. It knows nothing of NCCL: groups tell it what they issued and how to ask after it.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace annulus::cuda {

class Watchdog {
 public:
  struct Settings {
    double stall_seconds = 1800;
    std::chrono::milliseconds period{1000};
    std::string where;                            // "rank 3 on node n01"
    std::function<void(const std::string&)> end;  // gets the line; called at most once, from the thread
  };
  explicit Watchdog(Settings);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// A group joins. `failure` says what has gone wrong in it, or nothing. Both this and `done` below are
  /// called from the thread until `leave` returns.
  int join(std::function<std::string()> failure);
  void leave(int group);
  /// The group has begun something; `done` says whether it is over. Things end in the order they began.
  void began(int group, std::string what, std::function<bool()> done);

 private:
  using Clock = std::chrono::steady_clock;
  struct Pending {
    std::string what;
    std::function<bool()> done;
    Clock::time_point since;
  };
  struct Group {
    std::function<std::string()> failure;
    std::deque<Pending> pending;
  };
  void loop();
  std::string look(Clock::time_point now);  // the line to end with, or nothing

  Settings settings_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<int, Group> groups_;
  int next_ = 0;
  bool stop_ = false;
  Clock::time_point progress_ = Clock::now();  // when something last ended
  std::thread thread_;
};

}  // namespace annulus::cuda
