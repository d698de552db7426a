// Transfers that take their time. No memory to speak of is moved; one thread of one block sleeps in slices,
// so that the multiprocessor it stands on works on.
#include "core/check.cuh"
#include "core/pace.h"

namespace annulus::cuda {
namespace {

constexpr unsigned kSlice = 2000;  // nanoseconds of sleep between two looks at the clock

__device__ std::uint64_t device_clock() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__global__ void note_time_kernel(std::uint64_t* begun) {
  *begun = device_clock();
}

__global__ void hold_kernel(const std::uint64_t* begun, std::uint64_t nanoseconds) {
  while (device_clock() - *begun < nanoseconds) __nanosleep(kSlice);
}

}  // namespace

void launch_note_time(std::uint64_t* begun, cudaStream_t stream) {
  note_time_kernel<<<1, 1, 0, stream>>>(begun);
  launched("note_time_kernel");
}

void launch_hold(const std::uint64_t* begun, std::uint64_t nanoseconds, cudaStream_t stream) {
  hold_kernel<<<1, 1, 0, stream>>>(begun, nanoseconds);
  launched("hold_kernel");
}

}  // namespace annulus::cuda
