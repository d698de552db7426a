// Attention of a call's blocks: each by the engine that suits it, joined by log-sum-exp or by addition.
#pragma once
#include "attention/choice.h"
#include "attention/cudnn_sdpa.h"
#include "core/cuda_queue.h"
#include "ops/ops.h"

namespace annulus::cuda {

/// cuDNN gives a block's output in T, so a block that is not a whole call goes to scratch in the workspace
/// first: o and lse (forward), dq, dk, dv (backward). Our own engines work in place, but for dQ: the Hopper
/// engine sums it in f32, in the workspace where the call wants it in T.
class AttentionEngine {
 public:
  /// `hopper`: the device has compute capability 9.0. `only`: see AttentionTraits.
  AttentionEngine(CudaQueue& queue, bool deterministic, bool hopper, std::optional<Engine> only)
      : queue_(queue), deterministic_(deterministic), hopper_(hopper), only_(only) {}

  void forward(Lane, const AttentionFwd&);
  void backward(Lane, const AttentionBwd&);

  /// Upper bounds over all blocks of a call of this shape: scratch for the largest, and cuDNN's own workspace
  /// for it, asked of cuDNN.
  std::int64_t forward_bytes(const AttentionFwd&);
  std::int64_t backward_bytes(const AttentionBwd&);

 private:
  void backward_hopper(Lane, const AttentionBwd&, const AttentionBlock&);
  std::int64_t bytes(const Tensor& q, const Tensor& k, double scale, const AttentionTraits&,
                     std::int64_t scratch);
  AttentionTraits traits_of(const AttentionFwd&) const;
  AttentionTraits traits_of(const AttentionBwd&) const;

  CudaQueue& queue_;
  bool deterministic_, hopper_;
  std::optional<Engine> only_;
  CudnnSdpa cudnn_;
};

}  // namespace annulus::cuda
