// The operations on a CUDA device: one line each.
#pragma once
#include <array>
#include "attention/attention.h"
#include "blas/matmul.h"
#include "core/cuda_memory.h"
#include "core/cuda_queue.h"
#include "kernels/scratch.h"
#include "moe/grouped_matmul.h"
#include "ops/ops.h"

namespace annulus::cuda {

class CudaOps final : public Ops {
 public:
  CudaOps(CudaQueue&, DeviceMemory&, const CudaOptions&);

  const char* kind() const override { return "cuda"; }
  void embed_fwd(Lane, const EmbedFwd&) override;
  void embed_bwd(Lane, const EmbedBwd&) override;
  void rmsnorm_fwd(Lane, const RmsNormFwd&) override;
  void rmsnorm_bwd(Lane, const RmsNormBwd&) override;
  void matmul(Lane, const Matmul&) override;
  void column_sum(Lane, const ColumnSum&) override;
  void qk_rope_fwd(Lane, const QkRopeFwd&) override;
  void qk_rope_bwd(Lane, const QkRopeBwd&) override;
  void attention_fwd(Lane, const AttentionFwd&) override;
  void attention_delta(Lane, const AttentionDelta&) override;
  void attention_bwd(Lane, const AttentionBwd&) override;
  void swiglu_fwd(Lane, const SwigluFwd&) override;
  void swiglu_bwd(Lane, const SwigluBwd&) override;
  void loss_tile(Lane, const LossTile&) override;
  void sum(Lane, const Sum&) override;
  void add(Lane, const Add&) override;
  void cast(Lane, const Cast&) override;
  void adamw(Lane, const AdamW&) override;
  void route_fwd(Lane, const RouteFwd&) override;
  void route_bwd(Lane, const RouteBwd&) override;
  void route_count(Lane, const RouteCount&) override;
  void dispatch_index(Lane, const DispatchIndex&) override;
  void expert_index(Lane, const ExpertIndex&) override;
  void gather_rows(Lane, const GatherRows&) override;
  void combine_rows(Lane, const CombineRows&) override;
  void expert_swiglu_bwd(Lane, const ExpertSwigluBwd&) override;
  void grouped_matmul(Lane, const GroupedMatmul&) override;
  std::int64_t attention_fwd_bytes(const AttentionFwd&) const override;
  std::int64_t attention_bwd_bytes(const AttentionBwd&) const override;

 private:
  cudaStream_t on(Lane lane) const { return queue_.stream(lane); }
  /// Memory of one lane for partial sums and cuBLASLt. The compute lane's is there from the start, so that
  /// the arena can have the rest; other lanes get theirs when they first need it.
  Scratch scratch(Lane);

  CudaQueue& queue_;
  DeviceMemory& memory_;
  std::array<DeviceBuffer, kLanes> scratch_;
  MatmulEngine matmul_;
  GroupedMatmulEngine grouped_;
  mutable AttentionEngine attention_;  // its graphs are a cache
};

}  // namespace annulus::cuda
