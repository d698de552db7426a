// Device memory for the partial sums of one launch. It belongs to the backend; launches that share it share a
// stream. 64 MiB is always enough.
#pragma once
#include <cstdint>

namespace annulus::cuda {

struct Scratch {
  void* data = nullptr;  // 256-byte aligned
  std::int64_t bytes = 0;
};

}  // namespace annulus::cuda
