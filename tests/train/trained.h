// Whole training runs in a test: tiny models, real trainer, any group of ranks.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include "model/rig.h"
#include "support/temp_folder.h"
#include "support/world.h"
#include "train/trainer.h"

namespace annulus::test {

/// One folder for all ranks of a test; rank 0 makes it, and it is removed when all are done with it.
class SharedFolder {
 public:
  explicit SharedFolder(Comm& world);
  ~SharedFolder();
  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  Comm& world_;
  std::unique_ptr<TempFolder> mine_;
  std::string path_;
};

/// Calls `work` on the first `ranks` of the world with their group; the others wait.
void on_ranks(Comm& world, int ranks, const std::function<void(Comm&)>& work);

/// Folder of the oracle's case whose model and rows `name` takes: its own, or that of the base of its
/// adapters.
std::string base_of(const std::string& name);

/// A run of the oracle's tiny model `name` (tests/oracle) on data of the test's own: keys over the case's
/// run.ini; a LoRA case starts from its adapters.
RunConfig tiny_run(const std::string& name, const std::vector<std::string>& flags);

/// What the steps of one life gave, and how it ended.
struct Life {
  std::vector<StepReport> steps;
  Exit exit = Exit::ok;
};
/// Runs to the end, or until `stop_after` steps: then the last rank is sent SIGUSR1 in the middle of the
/// next.
Life live(Comm& world, const RunConfig&, std::optional<std::int64_t> stop_after = {});

/// All tensors of a checkpoint or gradient file, by dataset.
Gradients read_all(const std::string& h5);
/// JSONL rows of input_ids with the given lengths; all tokens but the first are targets, or, where
/// `targets[i]` is not negative, only the last so many.
std::string token_rows(const std::vector<std::int64_t>& lengths, const std::vector<std::int64_t>& targets,
                       std::int64_t vocabulary);

}  // namespace annulus::test
