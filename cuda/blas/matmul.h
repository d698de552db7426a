// Matrix products through cuBLASLt.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <array>
#include <cstdint>
#include <memory>
#include "core/lru.h"
#include "kernels/scratch.h"
#include "ops/ops.h"

namespace annulus::cuda {

/// All that the choice of an algorithm depends on.
using MatmulKey = std::array<std::int64_t, 13>;

/// Products in f32 arithmetic (no TF32), summed in f32 and rounded once. Sizes and strides of any parity
/// work: the alignment of each operand is told as it is. Algorithms are chosen once per shape.
class MatmulEngine {
 public:
  MatmulEngine();

  /// `scratch` is cuBLASLt's workspace.
  void run(const Matmul&, Scratch scratch, cudaStream_t);

 private:
  std::unique_ptr<cublasLtContext, void (*)(cublasLtHandle_t)> handle_;
  Lru<MatmulKey, cublasLtMatmulAlgo_t> algorithms_{4096};
};

}  // namespace annulus::cuda
