// What a device brings: its queue, its memories, its operations, and its groups of ranks.
#pragma once
#include <memory>
#include <string>
#include "comm/comm.h"
#include "core/memory.h"
#include "core/queue.h"
#include "ops/ops.h"

namespace annulus {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Queue& queue() = 0;
  virtual Memory& memory() = 0;  // where tensors live
  virtual Memory& pinned() = 0;  // host memory that the device copies from and to
  virtual Ops& ops() = 0;
  /// The tensor face for a group whose host face is `group` (the backend keeps no reference to it beyond the
  /// returned object, which owns it).
  virtual std::unique_ptr<Comm> device_comm(std::unique_ptr<Comm> group) = 0;
  virtual std::int64_t device_used_bytes()
      const = 0;  // what the whole process takes from the device; 0 on a CPU
  virtual std::int64_t device_free_bytes() const { return 0; }  // what is left on the device; 0 on a CPU
  virtual double peak_flops() const { return 0; }  // the data sheet's dense bf16 rate; 0: none is known
  virtual std::string describe() const = 0;        // one line: device name, uuid, libraries
};

std::unique_ptr<Backend> make_cpu_backend(int threads);  // ops/cpu/backend.cpp; BLAS threads set here
/// Counts memory and computes nothing; asks `sizes` (when there is one) for the scratch of attention calls.
std::unique_ptr<Backend> make_dry_backend(Place, const Ops* sizes);  // ops/dry/backend.cpp

}  // namespace annulus
