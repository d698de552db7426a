// Which engine computes a grouped matmul: plain C++, so that the choice is tested without a GPU.
#pragma once
#include "ops/ops.h"

namespace annulus::cuda {

enum class GroupedEngine : std::uint8_t {
  hopper,     // one persistent kernel over all experts (hopper_grouped.cuh)
  one_by_one  // cuBLASLt, a product an expert
};

/// `hopper`: the device has compute capability 9.0. Its kernels read bf16, in rows that are multiples of 16
/// bytes at addresses of the same.
GroupedEngine choose_grouped(const GroupedMatmul&, bool hopper);

}  // namespace annulus::cuda
