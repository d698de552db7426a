// The second half of a deterministic column sum: kernels leave one partial row a block, these rows are added
// up in order.
#pragma once
#include <cuda_runtime_api.h>
#include <cstdint>
#include "kernels/scratch.h"

namespace annulus::cuda {

/// Partial rows of a launch at most. A constant, so that the order of a sum does not depend on the device:
/// four blocks for each of 132 multiprocessors.
inline constexpr std::int64_t kPartials = 528;

/// Rows of `columns` floats that fit in the scratch, at most `wanted`. Fails when not even one does.
std::int64_t partial_rows(Scratch, std::int64_t columns, std::int64_t wanted);

/// out[c] += sum_p partial[p * stride + c], in order of p within fixed groups.
void launch_add_partials(const float* partial, std::int64_t rows, std::int64_t stride, std::int64_t columns,
                         float* out, cudaStream_t);

}  // namespace annulus::cuda
