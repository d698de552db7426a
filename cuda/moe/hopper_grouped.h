// Grouped matmul with Hopper's own instructions: one persistent kernel works through the tiles of all
// experts. What they take is what choose_grouped() gives them (grouped_choice.h).
#pragma once
#include <cuda_runtime_api.h>
#include "kernels/scratch.h"
#include "ops/ops.h"

namespace annulus::cuda {

/// c = a b, c = a b', c += a' b, each times `scale`; the first two added to c too. `multiprocessors`: those
/// that the kernel may use.
void launch_hopper_rows(const GroupedMatmul&, int multiprocessors, Scratch, cudaStream_t);
void launch_hopper_rows_trans(const GroupedMatmul&, int multiprocessors, Scratch, cudaStream_t);
void launch_hopper_gradient(const GroupedMatmul&, int multiprocessors, Scratch, cudaStream_t);

}  // namespace annulus::cuda
