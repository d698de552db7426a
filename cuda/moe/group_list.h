// The products of a grouped matmul, listed in device memory for a kernel that works through all of them.
#pragma once
#include <cuda_runtime_api.h>
#include <array>
#include <cstdint>
#include <vector>
#include "kernels/scratch.h"
#include "ops/ops.h"

namespace annulus::cuda {

/// Products of one list at most: they travel as arguments of a kernel, which have 4 KB.
inline constexpr int kListed = 192;

/// In device memory, an entry a product. c (M, N) is the product, or its addend too, of a and b, whose layout
/// the kernel knows that takes the list. Strides are elements from one stored row to the next.
struct GroupArrays {
  int* sizes = nullptr;  // M, N, K
  const void** a = nullptr;
  const void** b = nullptr;
  void** c = nullptr;
  std::int64_t *a_stride = nullptr, *b_stride = nullptr, *c_stride = nullptr;
};

struct GroupList {
  int count = 0;
  std::vector<std::array<int, 3>> sizes;  // the same M, N, K on the host
  GroupArrays arrays;
  Scratch rest;  // what is left of the scratch
};

/// Lists the products of the experts from `expert` on that have rows, and moves `expert` behind the last that
/// was looked at.
GroupList launch_group_list(const GroupedMatmul&, std::int64_t& expert, Scratch, cudaStream_t);

}  // namespace annulus::cuda
