// Where the time of a step goes: operations wrapped in two stamps each.
#pragma once
#include <map>
#include <string>
#include <vector>
#include "ops/backend.h"

namespace annulus {

/// What operations of one kind took on the device, since the last reset.
struct OpTime {
  std::int64_t calls = 0;
  double seconds = 0;
};

/// A backend that passes everything on, times its operations, and measures how long the compute lane stands
/// still for other lanes' marks. The stamps cost a few microseconds a call.
class ProfiledBackend final : public Backend {
 public:
  explicit ProfiledBackend(Backend& real);
  ~ProfiledBackend() override;
  Queue& queue() override;
  Memory& memory() override { return real_.memory(); }
  Memory& pinned() override { return real_.pinned(); }
  Ops& ops() override;
  std::unique_ptr<Comm> device_comm(std::unique_ptr<Comm> group) override {
    return real_.device_comm(std::move(group));
  }
  std::int64_t device_used_bytes() const override { return real_.device_used_bytes(); }
  std::int64_t device_free_bytes() const override { return real_.device_free_bytes(); }
  double peak_flops() const override { return real_.peak_flops(); }
  std::string describe() const override { return real_.describe(); }

  /// By kind ("matmul", "attention forward", "waiting for the ring", ...). Waits for the device, then starts
  /// anew.
  std::map<std::string, OpTime> take();

 private:
  class Log;
  class TimedOps;
  class TimedQueue;
  Backend& real_;
  std::unique_ptr<Log> log_;
  std::unique_ptr<TimedQueue> queue_;
  std::unique_ptr<TimedOps> ops_;
};

}  // namespace annulus
