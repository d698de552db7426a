#include <unistd.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include "backend/cuda_ops.h"
#include "backend/device.h"
#include "backend/make.h"
#include "comm/nccl_comm.h"
#include "comm/watchdog.h"

namespace annulus::cuda {
namespace {

constexpr std::chrono::seconds kGrace{20};  // for the job's own abort, before this process ends by itself

/// Prints the line and ends the job. Aborting may hang too, so a second thread ends the process after a
/// while.
void end_job(const std::string& line, const std::function<void(Exit)>& abort) {
  std::fprintf(stderr, "%s\n", line.c_str());
  std::thread([] {
    std::this_thread::sleep_for(kGrace);
    std::_Exit(static_cast<int>(Exit::bug));
  }).detach();
  if (abort)
    abort(Exit::bug);
  else
    std::_Exit(static_cast<int>(Exit::bug));
}

std::string where(const CudaOptions& options, const Device& device) {
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) != 0) host[0] = '?';
  return "rank " + std::to_string(options.rank) + " on node " + host + ", GPU " +
         std::to_string(device.index);
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options)
      : device_(take_device(options)), ops_(queue_, memory_, options) {
    groups_.queue = &queue_;
    groups_.watchdog = std::make_shared<Watchdog>(Watchdog::Settings{
        .stall_seconds = options.stall_seconds,
        .where = where(options, device_),
        .end = [abort = options.abort](const std::string& line) { end_job(line, abort); }});
    groups_.step = options.step;
    groups_.device = device_.uuid;
    groups_.share = options.share;
  }

  Queue& queue() override { return queue_; }
  Memory& memory() override { return memory_; }
  Memory& pinned() override { return pinned_; }
  Ops& ops() override { return ops_; }
  std::unique_ptr<Comm> device_comm(std::unique_ptr<Comm> group) override {
    return make_device_comm(groups_, std::move(group));
  }

  /// What the device has less than all of its memory: this process has it to itself, unless devices are
  /// shared.
  std::int64_t device_used_bytes() const override {
    std::size_t free = 0, total = 0;
    cu(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return static_cast<std::int64_t>(total - free);
  }

  std::int64_t device_free_bytes() const override {
    std::size_t free = 0, total = 0;
    cu(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return static_cast<std::int64_t>(free);
  }

  double peak_flops() const override { return cuda::peak_flops(device_.name); }

  std::string describe() const override {
    std::string line = device_.name + ", " + device_.uuid + device_.idle + "; " + describe_libraries();
    line.pop_back();
    for (std::size_t at = line.find('\n'); at != std::string::npos; at = line.find('\n', at))
      line.replace(at, 1, "; ");
    return line;
  }

 private:
  Device device_;  // first: what follows lives on it
  CudaQueue queue_;
  DeviceMemory memory_;
  PinnedMemory pinned_;
  CudaOps ops_;
  NcclContext groups_;
};

}  // namespace
}  // namespace annulus::cuda

annulus::Backend* annulus_make_cuda_backend(const annulus::CudaOptions* options) {
  return new annulus::cuda::CudaBackend(*options);
}

void annulus_cuda_probe(annulus::CudaProbe* probe) {
  *probe = annulus::cuda::probe();
}
