// RUN/lock: two jobs never write one run folder.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace annulus {

/// Made with O_EXCL by rank 0; holds job, host, process and a heartbeat that a thread renews. A lock whose
/// process has ended (same boot and same process namespace), whose job is this very job in an earlier life,
/// or whose heartbeat is older than two minutes is stale: it is taken over, with a line that says so.
class RunLock {
 public:
  /// Environment error when a live job holds it.
  RunLock(std::string path, const std::function<void(const std::string&)>& say);
  ~RunLock();
  RunLock(const RunLock&) = delete;

 private:
  void renew();
  std::string path_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace annulus
