// Scaled dot-product attention by cuDNN, one graph per shape. The frontend's headers stay in the .cpp.
#pragma once
#include <cuda_runtime_api.h>
#include <array>
#include <cstdint>
#include <memory>

namespace annulus::cuda {

/// Shape of one block, and all that a graph depends on. Strides are elements from row to row; a row of q, o
/// and their gradients holds (H, D), one of k, v and theirs (G, D).
struct SdpaShape {
  std::int64_t Sq = 0, Sk = 0, H = 0, G = 0, D = 0;
  bool causal = false;  // the diagonal starts in the top left corner
  bool backward = false;
  double scale = 1.0;
  std::int64_t q = 0, k = 0, v = 0, o = 0;       // strides
  std::int64_t d_o = 0, dq = 0, dk = 0, dv = 0;  // strides, backward only
};

/// bf16, but for lse (H, Sq), f32, natural log, contiguous. Forward writes o and lse; backward reads them and
/// d_o and writes dq, dk, dv.
struct SdpaData {
  void *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr, *lse = nullptr;
  void *d_o = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
};

class CudnnSdpa {
 public:
  CudnnSdpa();
  ~CudnnSdpa();

  /// Device memory that this shape needs while it runs. Builds the graph.
  std::int64_t workspace_bytes(const SdpaShape&);
  void run(const SdpaShape&, const SdpaData&, void* workspace, std::int64_t workspace_bytes, cudaStream_t);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace annulus::cuda
