// A backend that computes nothing and owns no memory: it counts bytes and flops, and with rates also time.
#pragma once
#include "ops/backend.h"
#include "ops/dry/dry_ops.h"

namespace annulus {

class DryBackend final : public Backend {
 public:
  /// `sizes`, `rates`: as for DryOps; both may be null, and both outlive the backend.
  DryBackend(Place place, const Ops* sizes, const Rates* rates)
      : memory_(dry_memory(place)), rates_(rates), queue_(rates), ops_(queue_, sizes, rates) {}
  DryQueue& queue() override { return queue_; }
  Memory& memory() override { return memory_; }
  Memory& pinned() override { return dry_memory(Place::host); }
  Ops& ops() override { return ops_; }
  std::unique_ptr<Comm> device_comm(std::unique_ptr<Comm> group) override { return group; }
  std::int64_t device_used_bytes() const override;
  std::int64_t device_free_bytes() const override;
  double peak_flops() const override;
  std::string describe() const override { return "dry: counts memory, computes nothing"; }

 private:
  Memory& memory_;
  const Rates* rates_;
  DryQueue queue_;
  DryOps ops_;
};

}  // namespace annulus
