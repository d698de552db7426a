// Where the time of a step goes: operations and transfers between two stamps each.
#pragma once
#include <map>
#include <string>
#include <vector>
#include "ops/backend.h"

namespace annulus {

/// What operations or transfers of one kind took on the device.
struct OpTime {
  std::int64_t calls = 0;
  double seconds = 0;
  std::int64_t bytes = 0;  // of transfers: sent by this rank, as Traffic counts them
};

/// By kind. A transfer's time is its lane's, which on a real group includes waiting for the peers.
struct Profile {
  std::map<std::string, OpTime> operations;  // "matmul", "attention forward", "waiting for the ring", ...
  std::map<std::string, OpTime> transfers;   // "exchange on ring", "all-gather on gather", ...
};

/// A backend that passes everything on, times its operations and its groups' transfers, and measures how long
/// the compute lane stands still for other lanes' marks. The stamps cost a few microseconds a call.
class ProfiledBackend final : public Backend {
 public:
  explicit ProfiledBackend(Backend& real);
  ~ProfiledBackend() override;
  Queue& queue() override;
  Memory& memory() override { return real_.memory(); }
  Memory& pinned() override { return real_.pinned(); }
  Ops& ops() override;
  /// The group does not outlive this backend.
  std::unique_ptr<Comm> device_comm(std::unique_ptr<Comm> group) override;
  std::int64_t device_used_bytes() const override { return real_.device_used_bytes(); }
  std::int64_t device_free_bytes() const override { return real_.device_free_bytes(); }
  double peak_flops() const override { return real_.peak_flops(); }
  std::string describe() const override { return real_.describe(); }

  /// What was timed since the last call. Waits for the device.
  Profile take();

 private:
  class Log;
  class TimedComm;
  class TimedOps;
  class TimedQueue;
  Backend& real_;
  std::unique_ptr<Log> log_;
  std::unique_ptr<TimedQueue> queue_;
  std::unique_ptr<TimedOps> ops_;
};

}  // namespace annulus
