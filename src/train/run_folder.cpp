#include "train/run_folder.h"
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include "train/clock.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

/// Rank 0 alone finds it; inside agreed() it becomes everybody's.
[[noreturn]] void cannot_write(const std::string& path) {
  throw Error(Exit::environment,
              "cannot write " + path + ": " + std::strerror(errno) +
                  "; free space on that file system, or give a run.dir that can be written",
              false);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "unknown-host";
  return name;
}

std::string job_name() {
  return variable("SLURM_JOB_ID");
}

void write_whole(const std::string& path, const std::string& text) {
  const std::string fresh = path + ".new";
  std::ofstream out(fresh, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out || std::rename(fresh.c_str(), path.c_str()) != 0) cannot_write(path);
}

RunFolder::RunFolder(Comm& world, std::string dir) : writes_(world.rank() == 0), dir_(std::move(dir)) {
  agreed(world, "making the run folder", [&] {
    if (!writes_) return;
    std::error_code error;
    fs::create_directories(fs::path(dir_) / "checkpoints", error);
    if (error)
      environment_error("cannot create the run folder " + dir_ + ": " + error.message() +
                        "; give a run.dir that can be written");
    lock_ = std::make_unique<RunLock>(path("lock"), [this](const std::string& line) { say(line); });
    fs::remove(path("until"), error);  // an earlier life's
  });
  agreed(world, "seeing the run folder", [&] {
    if (!fs::exists(path("lock")))
      environment_error("host " + host_name() + " does not see " + path("lock") +
                        ", which rank 0 made: run.dir must lie on a file system that all hosts share");
  });
}

std::string RunFolder::checkpoint(std::int64_t step) const {
  char name[64];
  std::snprintf(name, sizeof name, "checkpoints/step-%06lld.h5", static_cast<long long>(step));
  return path(name);
}

void RunFolder::say(const std::string& line) const {
  if (!writes_) return;
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void RunFolder::write(const std::string& name, const std::string& text) const {
  if (writes_) write_whole(path(name), text);
}

void RunFolder::status(const Status& s) const {
  if (!writes_) return;
  nlohmann::ordered_json j;
  j["job"] = job_name();
  const std::string restarts = variable("SLURM_RESTART_COUNT");
  j["restart_count"] = restarts.empty() ? 0 : std::atoll(restarts.c_str());
  j["reason"] = s.reason;
  j["step"] = s.step;
  j["first_step"] = s.first_step;
  j["total_steps"] = s.total;
  j["time"] = static_cast<long long>(std::time(nullptr));
  try {
    write_whole(path("status.json"), j.dump(2) + "\n");
  } catch (const Error& e) {  // the run's own end or error matters more
    std::fprintf(stderr, "annulus: warning: %s\n", e.what());
  }
}

std::int64_t RunFolder::until(std::int64_t first) {
  constexpr double kSeconds = 3;
  if (steady_seconds() - until_asked_ > kSeconds) {
    until_asked_ = steady_seconds();
    std::ifstream in(path("until"));
    std::int64_t end = 0;
    if (in >> end && end > 0 && end != until_) {
      say("the allocation's end is now " + std::to_string(end) + " (seconds since 1970)");
      until_ = end;
    }
  }
  return until_ > 0 ? until_ : first;
}

void RunFolder::open_metrics(std::int64_t step) {
  if (!writes_) return;
  const std::string file = path("metrics.jsonl");
  std::string kept;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const auto j = nlohmann::json::parse(line, nullptr, false);
    // A line that a killed process left half written is no object.
    if (j.is_object() && j.value("step", step + 1) <= step) kept += line + "\n";
  }
  in.close();
  write_whole(file, kept);
  metrics_.open(file, std::ios::app);
  if (!metrics_) cannot_write(file);
}

void RunFolder::metric(const std::string& json) {
  if (!writes_) return;
  metrics_ << json << std::endl;
  if (!metrics_) cannot_write(path("metrics.jsonl"));
}

}  // namespace annulus
