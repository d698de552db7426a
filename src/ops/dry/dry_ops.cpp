#include "ops/dry/dry_ops.h"
#include <algorithm>
#include <limits>
#include "ops/check.h"

namespace annulus {
namespace {

/// What the CUDA backend asks for (cuda/attention/attention.cpp) where cuDNN takes the largest blocks: a
/// block's gradients in T, unless they are the call's own, its log-sum-exp, and the library's own memory.
bool by_library(const Tensor& q) {
  return q.dtype == DType::bf16 && (q.shape[2] == 64 || q.shape[2] == 128);
}

/// Rows of the largest block that the library takes: its offsets are 31-bit, those of the widest tensor too.
std::int64_t library_rows(std::int64_t rows, std::int64_t stride) {
  return std::min<std::int64_t>(rows,
                                std::numeric_limits<std::int32_t>::max() / std::max<std::int64_t>(1, stride));
}

std::int64_t lse_bytes(const Tensor& q) {
  return q.shape[0] * q.shape[1] * bytes_of(DType::f32);
}

}  // namespace

template <class Call>
void DryOps::run(Lane lane, const Call& a) {
  check(a);
  queue_.spend(lane, cost(a));
}

void DryOps::embed_fwd(Lane l, const EmbedFwd& a) {
  run(l, a);
}
void DryOps::embed_bwd(Lane l, const EmbedBwd& a) {
  run(l, a);
}
void DryOps::rmsnorm_fwd(Lane l, const RmsNormFwd& a) {
  run(l, a);
}
void DryOps::rmsnorm_bwd(Lane l, const RmsNormBwd& a) {
  run(l, a);
}
void DryOps::matmul(Lane l, const Matmul& a) {
  run(l, a);
}
void DryOps::column_sum(Lane l, const ColumnSum& a) {
  run(l, a);
}
void DryOps::qk_rope_fwd(Lane l, const QkRopeFwd& a) {
  run(l, a);
}
void DryOps::qk_rope_bwd(Lane l, const QkRopeBwd& a) {
  run(l, a);
}
void DryOps::attention_fwd(Lane l, const AttentionFwd& a) {
  check(a, attention_fwd_bytes(a));
  queue_.spend(l, cost(a));
}
void DryOps::attention_delta(Lane l, const AttentionDelta& a) {
  run(l, a);
}
void DryOps::attention_bwd(Lane l, const AttentionBwd& a) {
  check(a, attention_bwd_bytes(a));
  queue_.spend(l, cost(a));
}
void DryOps::swiglu_fwd(Lane l, const SwigluFwd& a) {
  run(l, a);
}
void DryOps::swiglu_bwd(Lane l, const SwigluBwd& a) {
  run(l, a);
}
void DryOps::loss_tile(Lane l, const LossTile& a) {
  run(l, a);
}
void DryOps::sum(Lane l, const Sum& a) {
  run(l, a);
}
void DryOps::add(Lane l, const Add& a) {
  run(l, a);
}
void DryOps::cast(Lane l, const Cast& a) {
  run(l, a);
}
void DryOps::adamw(Lane l, const AdamW& a) {
  run(l, a);
}
void DryOps::route_fwd(Lane l, const RouteFwd& a) {
  run(l, a);
}
void DryOps::route_bwd(Lane l, const RouteBwd& a) {
  run(l, a);
}
void DryOps::route_count(Lane l, const RouteCount& a) {
  run(l, a);
}
void DryOps::dispatch_index(Lane l, const DispatchIndex& a) {
  run(l, a);
}
void DryOps::expert_index(Lane l, const ExpertIndex& a) {
  run(l, a);
}
void DryOps::gather_rows(Lane l, const GatherRows& a) {
  run(l, a);
}
void DryOps::combine_rows(Lane l, const CombineRows& a) {
  run(l, a);
}
void DryOps::expert_swiglu_bwd(Lane l, const ExpertSwigluBwd& a) {
  run(l, a);
}
void DryOps::grouped_matmul(Lane l, const GroupedMatmul& a) {
  run(l, a);
}

std::int64_t DryOps::attention_fwd_bytes(const AttentionFwd& a) const {
  if (sizes_ != nullptr) return sizes_->attention_fwd_bytes(a);
  if (rates_ == nullptr || !by_library(a.q) || a.q.shape[2] == 128) return 0;  // at 128 our own kernel leads
  return a.q.bytes() + lse_bytes(a.q);
}

std::int64_t DryOps::attention_bwd_bytes(const AttentionBwd& a) const {
  if (sizes_ != nullptr) return sizes_->attention_bwd_bytes(a);
  if (rates_ == nullptr || !by_library(a.q)) return 0;
  const std::int64_t heads = a.q.shape[1], row = heads * a.q.shape[2];
  const auto library = [&](const char* key, std::int64_t elements) {
    return static_cast<std::int64_t>(rates_->number(key) * static_cast<double>(elements));
  };
  const std::int64_t gradients = a.dq.dtype == a.q.dtype ? 0 : a.q.bytes() + 2 * a.k.bytes();
  const std::int64_t stride = std::max(a.q.stride(), a.k.stride());
  const std::int64_t queries = library_rows(a.q.shape[0], stride), keys = library_rows(a.k.shape[0], stride);
  const std::int64_t largest =
      gradients + lse_bytes(a.q) + library("scratch.attention_bwd.q", queries * row) +
      library("scratch.attention_bwd.k", keys * row) + library("scratch.attention_bwd.row", queries * heads);
  // Our own kernel, which takes the others, sums dQ in f32.
  return gradients > 0 ? largest : std::max(largest, a.q.size() * bytes_of(DType::f32));
}

}  // namespace annulus
