// The run folder as rank 0 writes it: config.ini, facts.txt, status.json, lock, metrics.jsonl.
#pragma once
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include "comm/comm.h"
#include "train/run_lock.h"

namespace annulus {

std::string host_name();
/// Slurm's job id, "" outside a job.
std::string job_name();

/// Writes PATH.new and renames it: a reader finds the old text or the new. A failure is this rank's alone.
void write_whole(const std::string& path, const std::string& text);

/// What status.json says of a life of the run. Scripts decide by it whether to requeue.
struct Status {
  std::string reason;           // "running", "done", "time limit", "SIGUSR1", "SIGTERM", "error: ..."
  std::int64_t step = 0;        // whole steps in the newest checkpoint or at the end
  std::int64_t first_step = 0;  // where this life began: progress = step - first_step
  std::int64_t total = 0;
};

/// Made on every rank; rank 0 alone writes. All ranks must see the folder.
class RunFolder {
 public:
  /// Creates the folder and takes its lock. Collective; environment error when it cannot be written or is in
  /// use.
  RunFolder(Comm& world, std::string dir);

  std::string path(const std::string& name) const { return dir_ + "/" + name; }
  std::string checkpoint(std::int64_t step) const;  // its file name: checkpoints/step-000120.h5
  const std::string& dir() const { return dir_; }

  /// Rank 0 prints a line.
  void say(const std::string& line) const;
  /// Rank 0's file of this name, whole.
  void write(const std::string& name, const std::string& text) const;
  void status(const Status&) const;  // a failure only warns

  /// The end of the allocation as RUN/until says (seconds since 1970), which the job script writes when it
  /// has asked again; `first` without that file. Looked at once a few seconds.
  std::int64_t until(std::int64_t first);

  /// Keeps the lines of steps up to `step` (a run that resumes there), and opens the file to append.
  void open_metrics(std::int64_t step);
  /// One line, at once in the file.
  void metric(const std::string& json);

 private:
  bool writes_;
  std::string dir_;
  std::unique_ptr<RunLock> lock_;
  std::ofstream metrics_;
  std::int64_t until_ = 0;    // 0: no file
  double until_asked_ = 0.0;  // when, by the steady clock
};

}  // namespace annulus
