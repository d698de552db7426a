// Where bytes come from.
#pragma once
#include <cstdint>
#include "core/tensor.h"

namespace annulus {

/// A kind of memory: host, pinned host, device, or (dry) addresses that nobody may touch.
/// `allocate` gives 256-byte alignment and throws an environment error with the figures when it cannot.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual Place place() const = 0;
  /// False: addresses that nobody may touch; what the host would write there or read from it is left out.
  virtual bool real() const { return true; }
  virtual void* allocate(std::int64_t bytes, const char* what) = 0;
  virtual void release(void* data) noexcept = 0;
};

/// Ordinary host memory (core/memory.cpp).
Memory& host_memory();
/// Gives out distinct addresses and no memory: for counting (core/memory.cpp).
Memory& dry_memory(Place);

}  // namespace annulus
