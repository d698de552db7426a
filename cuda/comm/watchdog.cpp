#include "comm/watchdog.h"

#include <algorithm>

namespace annulus::cuda {

Watchdog::Watchdog(Settings settings) : settings_(std::move(settings)), thread_([this] { loop(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard hold(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

int Watchdog::join(std::function<std::string()> failure) {
  const std::lock_guard hold(mutex_);
  groups_[next_].failure = std::move(failure);
  return next_++;
}

void Watchdog::leave(int group) {
  const std::lock_guard hold(mutex_);
  groups_.erase(group);
}

void Watchdog::began(int group, std::string what, std::function<bool()> done) {
  const std::lock_guard hold(mutex_);
  groups_.at(group).pending.push_back({std::move(what), std::move(done), Clock::now()});
}

std::string Watchdog::look(Clock::time_point now) {
  for (auto& [id, group] : groups_) {
    for (; !group.pending.empty() && group.pending.front().done(); group.pending.pop_front()) progress_ = now;
  }
  for (auto& [id, group] : groups_) {
    const std::string& what = group.pending.empty() ? "between two collectives" : group.pending.front().what;
    if (const std::string failure = group.failure(); !failure.empty())
      return settings_.where + ": " + what + ": " + failure;
    if (group.pending.empty()) continue;
    // What was queued ahead of time cannot have stalled while others still finish.
    const std::chrono::duration<double> idle = now - std::max(group.pending.front().since, progress_);
    if (idle.count() > settings_.stall_seconds)
      return settings_.where + ": " + what + " has not finished, nor anything else, for " +
             std::to_string(static_cast<long long>(idle.count())) +
             " s: a rank may have died or hang, or the fabric be down (run.stall_seconds is the limit)";
  }
  return {};
}

void Watchdog::loop() {
  std::unique_lock hold(mutex_);
  while (!stop_) {
    const std::string line = look(Clock::now());
    if (!line.empty()) {
      hold.unlock();
      settings_.end(line);
      return;
    }
    const Clock::time_point before = Clock::now();
    wake_.wait_for(hold, settings_.period);
    // So much longer than asked: this process was suspended, and the time does not count.
    if (Clock::now() - before > settings_.period + std::chrono::seconds(2)) progress_ = Clock::now();
  }
}

}  // namespace annulus::cuda
