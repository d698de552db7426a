// Embedding look-up and its gradient.
#pragma once
#include <cuda_runtime_api.h>
#include "ops/ops.h"

namespace annulus::cuda {

void launch_embed_fwd(const EmbedFwd&, cudaStream_t);
void launch_embed_bwd(const EmbedBwd&, cudaStream_t);

}  // namespace annulus::cuda
