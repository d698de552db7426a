#include "train/background_save.h"
#include <csignal>
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

}  // namespace

BackgroundSave::~BackgroundSave() {
  if (thread_.joinable()) thread_.join();
}

void BackgroundSave::begin(Comm& world, Engine& engine, const std::string& path,
                           std::map<std::string, std::string> facts, const std::string& fail) {
  need(!active(), "one background save at a time");
  snapshot_.rewind();
  save_ = begin_state(world, engine, snapshot_, path, std::move(facts), fail);
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
