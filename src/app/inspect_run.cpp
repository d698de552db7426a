// inspect of a run folder: how the run stands and what can be gone on from.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include "app/commands.h"
#include "config/model_config.h"
#include "core/gigabytes.h"
#include "io/checkpoint.h"
#include "io/token_file.h"
#include "io/weights.h"
#include "train/report/history.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

std::string fact(const H5Reader& file, const char* name) {
  const auto at = file.facts().find(name);
  return at != file.facts().end() ? at->second : "unknown";
}

void print_status(const Program& program, const std::string& folder) {
  if (!fs::exists(folder + "/metrics.jsonl")) {
    say(program, "no step is done yet");
    return;
  }
  const History h = read_history(folder, 1);
  const std::int64_t step = h.step.empty() ? 0 : h.step.back();
  std::string line = "status: " + (h.reason.empty() ? std::string("unknown") : h.reason);
  if (h.reason == "running" && !h.alive) line += " is what it says, and nobody holds its lock: it was killed";
  say(program, line);
  line = "step ";
  line += std::to_string(step);
  if (h.total > 0) line += " of " + std::to_string(h.total);
  if (const auto loss = h.last.find("loss"); loss != h.last.end())
    line += ", loss " + std::to_string(loss->second);
  if (!h.evals.empty())
    if (const auto loss = h.evals.back().values.find("loss"); loss != h.evals.back().values.end())
      line +=
          ", eval loss " + std::to_string(loss->second) + " at step " + std::to_string(h.evals.back().step);
  say(program, line);
}

void print_model(const Program& program, const H5Reader& file, const std::string& path) {
  const auto json = file.facts().find("config_json");
  if (json == file.facts().end()) return;
  const ModelConfig c = parse_model_config(json->second, path);
  say(program, "model: " + c.model_type + ", " + std::to_string(c.L) + " layers, " +
                   std::to_string(c.parameters()) + " parameters");
}

/// One line a file; whether it opens, not whether its digests are right.
void print_file(const Program& program, const std::string& path) {
  std::error_code none;
  const std::string head = path + ": " + gigabytes(static_cast<double>(fs::file_size(path, none))) + ", ";
  try {
    const std::unique_ptr<H5Reader> file = open_h5(path);
    const auto loss = file->facts().find("eval_loss");
    say(program, head + "step " + fact(*file, "step") +
                     (loss != file->facts().end() ? ", eval loss " + loss->second : std::string()));
  } catch (const Error& e) {
    if (e.code != Exit::input) throw;
    say(program, head + "not whole: " + e.what());
  }
}

}  // namespace

bool is_run_folder(const std::string& path) {
  return fs::is_directory(path) && !fs::exists(path + "/config.json") &&
         (fs::exists(path + "/status.json") || fs::is_directory(path + "/checkpoints"));
}

void print_run(Program& program, const std::string& folder) {
  say(program, "run folder " + folder);
  print_status(program, folder);
  const std::string checkpoints = folder + "/checkpoints";
  for (const CheckpointFile& f : list_checkpoints(checkpoints)) print_file(program, f.path);
  std::string newest;
  const std::unique_ptr<H5Reader> whole = newest_checkpoint(
      program.world, checkpoints, [&](const std::string& line) { say(program, line); }, &newest);
  say(program, whole ? "newest whole checkpoint: " + newest + ", all digests are right"
                     : std::string("no whole checkpoint: the run begins anew when it is started again"));
  if (whole) print_model(program, *whole, newest);
  if (fs::exists(folder + "/best.h5")) print_file(program, folder + "/best.h5");
  if (fs::exists(folder + "/tokens.h5")) {
    const std::unique_ptr<TokenFile> tokens = open_token_file(folder + "/tokens.h5");
    say(program, folder + "/tokens.h5: " + std::to_string(tokens->documents().size() - 1) + " documents, " +
                     std::to_string(tokens->documents().back()) + " tokens");
  }
  if (fs::exists(folder + "/model/config.json"))
    say(program, folder + "/model: a Hugging Face folder of " +
                     std::to_string(open_weights(folder + "/model")->tensors().size()) + " tensors");
}

}  // namespace annulus
