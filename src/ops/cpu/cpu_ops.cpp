// One line an operation: check, then compute.
#include "ops/cpu/cpu_ops.h"
#include "ops/check.h"
#include "ops/cpu/reference.h"

namespace annulus {
namespace {

template <class Op>
void run(const Op& a, void (*compute)(const Op&)) {
  check(a);
  compute(a);
}

}  // namespace

void CpuOps::embed_fwd(Lane, const EmbedFwd& a) {
  run(a, ref::embed_fwd);
}
void CpuOps::embed_bwd(Lane, const EmbedBwd& a) {
  run(a, ref::embed_bwd);
}
void CpuOps::rmsnorm_fwd(Lane, const RmsNormFwd& a) {
  run(a, ref::rmsnorm_fwd);
}
void CpuOps::rmsnorm_bwd(Lane, const RmsNormBwd& a) {
  run(a, ref::rmsnorm_bwd);
}
void CpuOps::matmul(Lane, const Matmul& a) {
  run(a, ref::matmul);
}
void CpuOps::column_sum(Lane, const ColumnSum& a) {
  run(a, ref::column_sum);
}
void CpuOps::qk_rope_fwd(Lane, const QkRopeFwd& a) {
  run(a, ref::qk_rope_fwd);
}
void CpuOps::qk_rope_bwd(Lane, const QkRopeBwd& a) {
  run(a, ref::qk_rope_bwd);
}
void CpuOps::attention_fwd(Lane, const AttentionFwd& a) {
  check(a, attention_fwd_bytes(a));
  ref::attention_fwd(a);
}
void CpuOps::attention_delta(Lane, const AttentionDelta& a) {
  run(a, ref::attention_delta);
}
void CpuOps::attention_bwd(Lane, const AttentionBwd& a) {
  check(a, attention_bwd_bytes(a));
  ref::attention_bwd(a);
}
void CpuOps::swiglu_fwd(Lane, const SwigluFwd& a) {
  run(a, ref::swiglu_fwd);
}
void CpuOps::swiglu_bwd(Lane, const SwigluBwd& a) {
  run(a, ref::swiglu_bwd);
}
void CpuOps::loss_tile(Lane, const LossTile& a) {
  run(a, ref::loss_tile);
}
void CpuOps::sum(Lane, const Sum& a) {
  run(a, ref::sum);
}
void CpuOps::add(Lane, const Add& a) {
  run(a, ref::add);
}
void CpuOps::cast(Lane, const Cast& a) {
  run(a, ref::cast);
}
void CpuOps::adamw(Lane, const AdamW& a) {
  run(a, ref::adamw);
}
void CpuOps::route_fwd(Lane, const RouteFwd& a) {
  run(a, ref::route_fwd);
}
void CpuOps::route_bwd(Lane, const RouteBwd& a) {
  run(a, ref::route_bwd);
}
void CpuOps::route_count(Lane, const RouteCount& a) {
  run(a, ref::route_count);
}
void CpuOps::dispatch_index(Lane, const DispatchIndex& a) {
  run(a, ref::dispatch_index);
}
void CpuOps::expert_index(Lane, const ExpertIndex& a) {
  run(a, ref::expert_index);
}
void CpuOps::gather_rows(Lane, const GatherRows& a) {
  run(a, ref::gather_rows);
}
void CpuOps::combine_rows(Lane, const CombineRows& a) {
  run(a, ref::combine_rows);
}
void CpuOps::expert_swiglu_bwd(Lane, const ExpertSwigluBwd& a) {
  run(a, ref::expert_swiglu_bwd);
}
void CpuOps::grouped_matmul(Lane, const GroupedMatmul& a) {
  run(a, ref::grouped_matmul);
}

std::int64_t CpuOps::attention_fwd_bytes(const AttentionFwd& a) const {
  return ref::attention_fwd_bytes(a);
}
std::int64_t CpuOps::attention_bwd_bytes(const AttentionBwd& a) const {
  return ref::attention_bwd_bytes(a);
}

}  // namespace annulus
