#include "ops/dry/dry_ops.h"
#include "ops/check.h"

namespace annulus {

void DryOps::embed_fwd(Lane, const EmbedFwd& a) {
  check(a);
}
void DryOps::embed_bwd(Lane, const EmbedBwd& a) {
  check(a);
}
void DryOps::rmsnorm_fwd(Lane, const RmsNormFwd& a) {
  check(a);
}
void DryOps::rmsnorm_bwd(Lane, const RmsNormBwd& a) {
  check(a);
}
void DryOps::matmul(Lane, const Matmul& a) {
  check(a);
}
void DryOps::column_sum(Lane, const ColumnSum& a) {
  check(a);
}
void DryOps::qk_rope_fwd(Lane, const QkRopeFwd& a) {
  check(a);
}
void DryOps::qk_rope_bwd(Lane, const QkRopeBwd& a) {
  check(a);
}
void DryOps::attention_fwd(Lane, const AttentionFwd& a) {
  check(a, attention_fwd_bytes(a));
}
void DryOps::attention_delta(Lane, const AttentionDelta& a) {
  check(a);
}
void DryOps::attention_bwd(Lane, const AttentionBwd& a) {
  check(a, attention_bwd_bytes(a));
}
void DryOps::swiglu_fwd(Lane, const SwigluFwd& a) {
  check(a);
}
void DryOps::swiglu_bwd(Lane, const SwigluBwd& a) {
  check(a);
}
void DryOps::loss_tile(Lane, const LossTile& a) {
  check(a);
}
void DryOps::sum(Lane, const Sum& a) {
  check(a);
}
void DryOps::add(Lane, const Add& a) {
  check(a);
}
void DryOps::cast(Lane, const Cast& a) {
  check(a);
}
void DryOps::adamw(Lane, const AdamW& a) {
  check(a);
}
void DryOps::route_fwd(Lane, const RouteFwd& a) {
  check(a);
}
void DryOps::route_bwd(Lane, const RouteBwd& a) {
  check(a);
}
void DryOps::route_count(Lane, const RouteCount& a) {
  check(a);
}
void DryOps::dispatch_index(Lane, const DispatchIndex& a) {
  check(a);
}
void DryOps::expert_index(Lane, const ExpertIndex& a) {
  check(a);
}
void DryOps::gather_rows(Lane, const GatherRows& a) {
  check(a);
}
void DryOps::combine_rows(Lane, const CombineRows& a) {
  check(a);
}
void DryOps::expert_swiglu_bwd(Lane, const ExpertSwigluBwd& a) {
  check(a);
}
void DryOps::grouped_matmul(Lane, const GroupedMatmul& a) {
  check(a);
}

std::int64_t DryOps::attention_fwd_bytes(const AttentionFwd& a) const {
  return sizes_ != nullptr ? sizes_->attention_fwd_bytes(a) : 0;
}

std::int64_t DryOps::attention_bwd_bytes(const AttentionBwd& a) const {
  return sizes_ != nullptr ? sizes_->attention_bwd_bytes(a) : 0;
}

}  // namespace annulus
