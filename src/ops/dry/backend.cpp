// A backend that computes nothing and owns no memory, for counting.
#include "ops/backend.h"
#include "ops/check.h"
#include "ops/dry/dry_ops.h"

namespace annulus {
namespace {

class DryQueue : public Queue {
 public:
  Mark mark(Lane) override { return {}; }
  void wait(Lane, Mark) override {}
  void sync(Mark) override {}
  void copy(Lane, const Tensor& from, const Tensor& to) override { check_copy(from, to); }
  void zero(Lane, const Tensor&) override {}
};

class DryBackend : public Backend {
 public:
  DryBackend(Place place, const Ops* sizes) : memory_(dry_memory(place)), ops_(sizes) {}
  Queue& queue() override { return queue_; }
  Memory& memory() override { return memory_; }
  Memory& pinned() override { return dry_memory(Place::host); }
  Ops& ops() override { return ops_; }
  std::unique_ptr<Comm> device_comm(std::unique_ptr<Comm> group) override { return group; }
  std::int64_t device_used_bytes() const override { return 0; }
  std::string describe() const override { return "dry: counts memory, computes nothing"; }

 private:
  Memory& memory_;
  DryQueue queue_;
  DryOps ops_;
};

}  // namespace

std::unique_ptr<Backend> make_dry_backend(Place place, const Ops* sizes) {
  return std::make_unique<DryBackend>(place, sizes);
}

}  // namespace annulus
