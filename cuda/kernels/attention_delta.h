// Row sums of o * d_o, which the backward of attention needs.
#pragma once
#include <cuda_runtime_api.h>
#include "ops/ops.h"

namespace annulus::cuda {

void launch_attention_delta(const AttentionDelta&, cudaStream_t);

}  // namespace annulus::cuda
