// The CPU as a backend: ordinary memory, a queue that waits for nothing, MPI's own groups.
#include "ops/backend.h"
#include "ops/cpu/blas.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/queue.h"

namespace annulus {
namespace {

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(int threads) : blas_(ref::set_blas_threads(threads)) {}
  Queue& queue() override { return queue_; }
  Memory& memory() override { return host_memory(); }
  Memory& pinned() override { return host_memory(); }
  Ops& ops() override { return ops_; }
  std::unique_ptr<Comm> device_comm(std::unique_ptr<Comm> group) override { return group; }
  std::int64_t device_used_bytes() const override { return 0; }
  std::string describe() const override { return "cpu: " + blas_; }

 private:
  std::string blas_;
  CpuQueue queue_;
  CpuOps ops_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads) {
  need(threads >= 1, "cpu backend: at least one thread");
  return std::make_unique<CpuBackend>(threads);
}

}  // namespace annulus
