// Matrix products of experts with uneven numbers of rows.
#pragma once
#include "blas/matmul.h"

namespace annulus::cuda {

class GroupedMatmulEngine {
 public:
  /// `matmul` computes what Hopper's kernels do not take. `hopper`: the device has compute capability 9.0.
  GroupedMatmulEngine(MatmulEngine& matmul, bool hopper);

  void run(const GroupedMatmul&, Scratch, cudaStream_t);

 private:
  MatmulEngine& matmul_;
  bool hopper_;
  int multiprocessors_ = 0;
};

}  // namespace annulus::cuda
