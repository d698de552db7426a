// The sigmoid of SwiGLU. Included by .cu files only.
#pragma once

namespace annulus::cuda {

/// 1 / (1 + exp(-g)); 0 for very negative g.
__device__ __forceinline__ float sigmoid(float g) {
  return __fdividef(1.f, 1.f + expf(-g));
}

}  // namespace annulus::cuda
