#include "train/run_lock.h"
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include "core/check.h"
#include "train/run_folder.h"

namespace annulus {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kHeartbeatSeconds = 20, kStaleSeconds = 120;

std::string first_line(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

/// What tells this machine's processes apart: the boot and the process namespace.
std::string process_space() {
  char ns[64] = {};
  if (readlink("/proc/self/ns/pid", ns, sizeof ns - 1) < 0) ns[0] = 0;
  return first_line("/proc/sys/kernel/random/boot_id") + " " + ns;
}

/// When the process started, in the kernel's ticks: a number used again is another process. "" when it is
/// gone.
std::string start_of(long pid) {
  const std::string line = first_line(("/proc/" + std::to_string(pid) + "/stat").c_str());
  const std::size_t end_of_name = line.rfind(')');
  if (end_of_name == std::string::npos) return "";
  std::istringstream fields(line.substr(end_of_name + 1));
  std::string state, field;
  fields >> state;
  for (int i = 4; i <= 22; ++i) fields >> field;
  return state == "Z" ? "" : field;
}

std::string lock_text() {
  Json j;
  j["job"] = job_name();
  j["host"] = host_name();
  j["pid"] = static_cast<long>(getpid());
  j["start"] = start_of(getpid());
  j["space"] = process_space();
  j["heartbeat"] = static_cast<long long>(std::time(nullptr));
  return j.dump() + "\n";
}

/// Empty when the lock is alive, else why it is stale.
std::string why_stale(const std::string& text) {
  const Json j = Json::parse(text, nullptr, false);
  if (!j.is_object()) return "it is not readable";
  const auto word = [&](const char* key) {
    return j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : std::string();
  };
  const auto number = [&](const char* key) {
    return j.contains(key) && j[key].is_number_integer() ? j[key].get<long long>() : 0LL;
  };
  if (word("space") == process_space()) {
    if (start_of(static_cast<long>(number("pid"))) == word("start")) return "";
    return "its process " + std::to_string(number("pid")) + " has ended";
  }
  if (!word("job").empty() && word("job") == job_name()) return "it is this job's, from its life before";
  const long long age = static_cast<long long>(std::time(nullptr)) - number("heartbeat");
  return age > kStaleSeconds ? "its heartbeat is " + std::to_string(age) + " s old" : "";
}

bool create(const std::string& path) {
  const int fd = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
  if (fd < 0) {
    if (errno == EEXIST) return false;
    environment_error("cannot create " + path + ": " + std::strerror(errno) +
                      "; give a run.dir that can be written");
  }
  const std::string text = lock_text();
  const bool whole = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool closed = close(fd) == 0;
  if (!whole || !closed) {
    unlink(path.c_str());
    environment_error("cannot write " + path + ": " + std::strerror(errno) +
                      "; free space on that file system");
  }
  return true;
}

std::string whole_text(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream all;
  all << in.rdbuf();
  return all.str();
}

}  // namespace

RunLock::RunLock(std::string path, const std::function<void(const std::string&)>& say)
    : path_(std::move(path)) {
  while (!create(path_)) {
    const std::string text = whole_text(path_);
    const std::string why = why_stale(text);
    if (why.empty()) {
      const Json j = Json::parse(text, nullptr, false);
      environment_error("the run folder is in use: " + path_ + " is held by process " + j["pid"].dump() +
                        " on " + j["host"].dump() + (j["job"] == "" ? "" : " (job " + j["job"].dump() + ")") +
                        "; wait for it, or give another run.dir");
    }
    // Renamed before it is removed: of two jobs that find it stale, one gets it.
    const std::string aside = path_ + "." + host_name() + "." + std::to_string(getpid());
    if (rename(path_.c_str(), aside.c_str()) != 0) continue;
    if (whole_text(aside) != text) {
      // Another job was quicker and this is its new lock: give it back unless there is one again.
      if (link(aside.c_str(), path_.c_str()) != 0 && errno != EEXIST)
        environment_error("cannot restore " + path_ + ": " + std::strerror(errno) +
                          "; see whether another job uses the run folder");
    } else {
      say("took over a stale lock: " + why);
    }
    unlink(aside.c_str());
  }
  thread_ = std::thread([this] { renew(); });
}

void RunLock::renew() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    ends_.wait_for(lock, std::chrono::seconds(kHeartbeatSeconds));
    if (over_) return;
    const std::string fresh = path_ + ".new";
    std::ofstream(fresh) << lock_text();
    if (rename(fresh.c_str(), path_.c_str()) != 0)
      std::fprintf(stderr, "annulus: warning: cannot renew %s: %s\n", path_.c_str(), std::strerror(errno));
  }
}

RunLock::~RunLock() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ends_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (unlink(path_.c_str()) != 0)
    std::fprintf(stderr, "annulus: warning: cannot remove %s: %s\n", path_.c_str(), std::strerror(errno));
}

}  // namespace annulus
