// Attention of a call's blocks: each by the engine that suits it, joined by log-sum-exp or by addition.
#pragma once
#include "attention/choice.h"
#include "attention/cudnn_sdpa.h"
#include "core/cuda_queue.h"
#include "ops/ops.h"

namespace annulus::cuda {

/// cuDNN gives a block's output in T, so a block that is not a whole call goes to scratch in the workspace
/// first: o and lse (forward), dq, dk, dv (backward). Our own engine works in place.
class AttentionEngine {
 public:
  AttentionEngine(CudaQueue& queue, bool deterministic) : queue_(queue), deterministic_(deterministic) {}

  void forward(Lane, const AttentionFwd&);
  void backward(Lane, const AttentionBwd&);

  /// Upper bounds over all blocks of a call of this shape: scratch for the largest, and cuDNN's own workspace
  /// for it, asked of cuDNN.
  std::int64_t forward_bytes(const AttentionFwd&);
  std::int64_t backward_bytes(const AttentionBwd&);

 private:
  std::int64_t bytes(const Tensor& q, const Tensor& k, double scale, const AttentionTraits&,
                     std::int64_t scratch);

  CudaQueue& queue_;
  bool deterministic_;
  CudnnSdpa cudnn_;
};

}  // namespace annulus::cuda
