// The order by expert of received rows.
#pragma once
#include <cuda_runtime_api.h>
#include "kernels/scratch.h"
#include "ops/ops.h"

namespace annulus::cuda {

void launch_expert_index(const ExpertIndex&, Scratch, cudaStream_t);

}  // namespace annulus::cuda
