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

std::int64_t CpuOps::attention_fwd_bytes(const AttentionFwd& a) const {
  return ref::attention_fwd_bytes(a);
}
std::int64_t CpuOps::attention_bwd_bytes(const AttentionBwd& a) const {
  return ref::attention_bwd_bytes(a);
}

}  // namespace annulus
