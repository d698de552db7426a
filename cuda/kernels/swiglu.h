// The gated activation of the MLP.
#pragma once
#include <cuda_runtime_api.h>
#include "ops/ops.h"

namespace annulus::cuda {

void launch_swiglu_fwd(const SwigluFwd&, cudaStream_t);
void launch_swiglu_bwd(const SwigluBwd&, cudaStream_t);

}  // namespace annulus::cuda
