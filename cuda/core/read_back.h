// Small copies from the device to pinned host memory, past the copy engines.
#pragma once
#include <cuda_runtime.h>
#include <cstdint>

namespace annulus::cuda {

inline constexpr std::int64_t kReadBackMost = 64 * 1024;  // bytes

/// Copies by a kernel's own stores, when `to` is host memory that the device can address and `bytes` are few.
/// False: nothing was queued. A copy engine takes one copy after another, so that a host that waits for some
/// counts would wait for the gigabytes of another lane too.
bool launch_read_back(void* to, const void* from, std::int64_t bytes, cudaStream_t stream);

}  // namespace annulus::cuda
