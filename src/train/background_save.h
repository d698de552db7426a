// A checkpoint that is written on a thread beside the training.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include "comm/comm.h"
#include "io/checkpoint.h"
#include "train/engine.h"
#include "train/staging.h"

namespace annulus {

/// The training waits while the state is copied to host memory (kept for the next time, a rank's share of
/// masters and moments), and for the file to be created and reserved. The thread then writes the copy; it
/// makes no MPI and no HDF5 call. What needs every rank happens in finish(), at a later step's edge.
class BackgroundSave {
 public:
  explicit BackgroundSave(Backend& backend) : snapshot_(backend, Staging::Host::copied) {}
  ~BackgroundSave();  // unfinished: the partial file is removed
  BackgroundSave(const BackgroundSave&) = delete;

  /// What is being saved.
  struct Job {
    std::int64_t step = -1;
    std::string path;
    double begun = 0;  // by the steady clock
  };

  /// Whether saves are to go this way: as checkpoint.background says, with "auto" where every host has room
  /// for its ranks' copies. Asked when the first save is due: by then all that the training needs has been
  /// taken. Collective.
  bool wanted(Comm& world, Engine&, const std::string& background, int ranks_of_host);
  /// Collective; none may be under way.
  void begin(Comm& world, Engine&, Job, std::map<std::string, std::string> facts, const std::string& fail);
  bool active() const { return save_ != nullptr; }
  const Job& job() const { return job_; }  // the last one begun
  /// All ranks have written their parts. Collective.
  bool written(Comm& world);
  /// Waits for the thread; then as Save::finish(). Collective.
  void finish();

 private:
  Staging snapshot_;
  std::unique_ptr<Save> save_;
  Job job_;
  std::optional<bool> fits_;
  std::atomic<bool> written_{false};
  std::thread thread_;
};

}  // namespace annulus
