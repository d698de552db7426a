// Groups of ranks whose tensors lie on devices: NCCL, bootstrapped through the group's host face.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include "comm/comm.h"
#include "comm/watchdog.h"
#include "core/cuda_queue.h"

namespace annulus::cuda {

/// What all groups of a backend share.
struct NcclContext {
  CudaQueue* queue = nullptr;
  std::shared_ptr<Watchdog> watchdog;
  const std::atomic<std::int64_t>* step = nullptr;
  std::string device;  // uuid: no two ranks of a group may have the same, unless `share`
  bool share = false;
};

/// The device face of `group`, which it owns and whose host face it passes on. A group of one needs no NCCL.
std::unique_ptr<Comm> make_device_comm(const NcclContext&, std::unique_ptr<Comm> group);

}  // namespace annulus::cuda
