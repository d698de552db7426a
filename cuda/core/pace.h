// Transfers that take their time: two small kernels round what is queued on a stream.
#pragma once
#include <cuda_runtime_api.h>
#include <cstdint>

namespace annulus::cuda {

/// *begun = the device's clock, in nanoseconds, when the stream gets here.
void launch_note_time(std::uint64_t* begun, cudaStream_t);
/// The stream goes on once `nanoseconds` have passed since *begun.
void launch_hold(const std::uint64_t* begun, std::uint64_t nanoseconds, cudaStream_t);

}  // namespace annulus::cuda
