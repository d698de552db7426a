#include "train/background_save.h"
#include <csignal>
#include "train/memory_plan.h"
#include "train/snapshot.h"

namespace annulus {
namespace {

/// Starts the thread with all signals blocked: they are for the main thread, whose waits they interrupt.
template <class Work>
std::thread quiet_thread(Work work) {
  sigset_t all, before;
  sigfillset(&all);
  need(pthread_sigmask(SIG_SETMASK, &all, &before) == 0, "signals can be blocked");
  std::thread thread(std::move(work));
  need(pthread_sigmask(SIG_SETMASK, &before, nullptr) == 0, "signals can be unblocked");
  return thread;
}

/// A rank's share of masters and moments.
std::int64_t snapshot_bytes(ShardedState& state) {
  std::int64_t bytes = 0;
  for (int u = 0; u < static_cast<int>(state.units().size()); ++u) {
    if (!state.trains(u)) continue;
    const UnitState& s = state.state(u);
    for (const Tensor& t : {s.master, s.m, s.v})
      if (t) bytes += t.bytes();
  }
  return bytes;
}

}  // namespace

BackgroundSave::~BackgroundSave() {
  if (thread_.joinable()) thread_.join();
}

bool BackgroundSave::wanted(Comm& world, Engine& engine, const std::string& background, int ranks_of_host) {
  if (background != "auto") return background == "true";
  if (!fits_) {
    const bool fits = snapshot_bytes(engine.state()) <= host_bytes_free() / 10 * 9 / ranks_of_host;
    fits_ = world.max(fits ? 0 : 1) == 0;
  }
  return *fits_;
}

void BackgroundSave::begin(Comm& world, Engine& engine, Job job, std::map<std::string, std::string> facts,
                           const std::string& fail) {
  need(!active(), "one background save at a time");
  job_ = std::move(job);
  snapshot_.rewind();
  save_ = begin_state(world, engine, snapshot_, job_.path, std::move(facts), fail);
  written_ = false;
  thread_ = quiet_thread([this] {
    save_->write();
    written_ = true;
  });
}

bool BackgroundSave::written(Comm& world) {
  return world.max(written_ ? 0 : 1) == 0;
}

void BackgroundSave::finish() {
  thread_.join();
  const std::unique_ptr<Save> save = std::move(save_);
  save->finish();
}

}  // namespace annulus
