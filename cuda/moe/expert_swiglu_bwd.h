// The gradient of SwiGLU and of an expert's share.
#pragma once
#include <cuda_runtime_api.h>
#include "ops/ops.h"

namespace annulus::cuda {

void launch_expert_swiglu_bwd(const ExpertSwigluBwd&, cudaStream_t);

}  // namespace annulus::cuda
