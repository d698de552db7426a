// Writes a few kilobytes to pinned host memory. Some microseconds, bound by the bus.
//
//   grid   one block
//   each   thread writes 4 bytes in turn; single bytes where addresses or the size are no multiple of 4
//   needs  host memory that the device addresses; seen by the host once an event after it has passed
#include "core/check.cuh"
#include "core/read_back.h"

namespace annulus::cuda {
namespace {

constexpr int kThreads = 1024;

template <class Word>
__global__ void __launch_bounds__(kThreads)
    read_back_kernel(Word* __restrict__ to, const Word* __restrict__ from, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) to[i] = from[i];
}

template <class Word>
void launch(void* to, const void* from, std::int64_t bytes, cudaStream_t stream) {
  read_back_kernel<<<1, kThreads, 0, stream>>>(static_cast<Word*>(to), static_cast<const Word*>(from),
                                               static_cast<int>(bytes / std::int64_t{sizeof(Word)}));
  launched("read_back_kernel");
}

}  // namespace

bool launch_read_back(void* to, const void* from, std::int64_t bytes, cudaStream_t stream) {
  if (bytes > kReadBackMost) return false;
  cudaPointerAttributes attributes{};
  cu(cudaPointerGetAttributes(&attributes, to), "cudaPointerGetAttributes");
  if (attributes.type != cudaMemoryTypeHost || attributes.devicePointer == nullptr) return false;
  const auto address =
      reinterpret_cast<std::uintptr_t>(attributes.devicePointer) | reinterpret_cast<std::uintptr_t>(from);
  const bool words = (address | static_cast<std::uintptr_t>(bytes)) % sizeof(std::uint32_t) == 0;
  if (words)
    launch<std::uint32_t>(attributes.devicePointer, from, bytes, stream);
  else
    launch<std::uint8_t>(attributes.devicePointer, from, bytes, stream);
  return true;
}

}  // namespace annulus::cuda
