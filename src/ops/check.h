// What every backend may rely on: shapes, types and strides of each operation, checked in one place.
#pragma once
#include "ops/ops.h"

namespace annulus {

/// Each fails, naming the tensor, when a call breaks its struct's description in ops.h. Reads no element: it
/// works on the host whatever the place of the tensors.
void check(const EmbedFwd&);
void check(const EmbedBwd&);
void check(const RmsNormFwd&);
void check(const RmsNormBwd&);
void check(const Matmul&);
void check(const ColumnSum&);
void check(const QkRopeFwd&);
void check(const QkRopeBwd&);
void check(const AttentionFwd&, std::int64_t workspace_bytes);
void check(const AttentionDelta&);
void check(const AttentionBwd&, std::int64_t workspace_bytes);
void check(const SwigluFwd&);
void check(const SwigluBwd&);
void check(const LossTile&);
void check(const Sum&);
void check(const Add&);
void check(const Cast&);
void check(const AdamW&);
void check(const RouteFwd&);
void check(const RouteBwd&);
void check(const RouteCount&);
void check(const DispatchIndex&);
void check(const ExpertIndex&);
void check(const GatherRows&);
void check(const CombineRows&);
void check(const ExpertSwigluBwd&);
void check(const GroupedMatmul&);

/// Same dtype and shape, for Queue::copy.
void check_copy(const Tensor& from, const Tensor& to);

}  // namespace annulus
