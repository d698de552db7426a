// Every operation in plain loops, one function each: the answer that other backends are held to, and the CPU
// backend itself. Sums are kept in double and in a fixed order. Arguments have passed check().
#pragma once
#include "ops/ops.h"

namespace annulus::ref {

void embed_fwd(const EmbedFwd&);
void embed_bwd(const EmbedBwd&);
void rmsnorm_fwd(const RmsNormFwd&);
void rmsnorm_bwd(const RmsNormBwd&);
void matmul(const Matmul&);
void column_sum(const ColumnSum&);
void qk_rope_fwd(const QkRopeFwd&);
void qk_rope_bwd(const QkRopeBwd&);
void attention_fwd(const AttentionFwd&);
void attention_delta(const AttentionDelta&);
void attention_bwd(const AttentionBwd&);
void swiglu_fwd(const SwigluFwd&);
void swiglu_bwd(const SwigluBwd&);
void loss_tile(const LossTile&);
void sum(const Sum&);
void add(const Add&);
void cast(const Cast&);
void adamw(const AdamW&);
void route_fwd(const RouteFwd&);
void route_bwd(const RouteBwd&);
void route_count(const RouteCount&);
void dispatch_index(const DispatchIndex&);
void expert_index(const ExpertIndex&);
void gather_rows(const GatherRows&);
void combine_rows(const CombineRows&);
void expert_swiglu_bwd(const ExpertSwigluBwd&);
void grouped_matmul(const GroupedMatmul&);

std::int64_t attention_fwd_bytes(const AttentionFwd&);
std::int64_t attention_bwd_bytes(const AttentionBwd&);

}  // namespace annulus::ref
