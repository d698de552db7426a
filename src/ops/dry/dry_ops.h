#pragma once
#include "ops/cost.h"
#include "ops/dry/dry_queue.h"
#include "ops/ops.h"

namespace annulus {

/// Computes nothing: checks every call as other backends do, so that a dry run finds what a real one would,
/// and spends its cost on the queue's clocks.
class DryOps : public Ops {
 public:
  /// `sizes`: whose attention scratch is being counted; null: that of the device that `rates` describe; both
  /// null: nobody's.
  DryOps(DryQueue& queue, const Ops* sizes, const Rates* rates)
      : queue_(queue), sizes_(sizes), rates_(rates) {}
  const char* kind() const override { return "dry"; }
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
  template <class Call>
  void run(Lane, const Call&);

  DryQueue& queue_;
  const Ops* sizes_;
  const Rates* rates_;
};

}  // namespace annulus
