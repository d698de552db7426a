// Cross-entropy of a tile of tokens; the gradient replaces the logits.
#pragma once
#include <cuda_runtime_api.h>
#include "ops/ops.h"

namespace annulus::cuda {

void launch_loss_tile(const LossTile&, cudaStream_t);

}  // namespace annulus::cuda
