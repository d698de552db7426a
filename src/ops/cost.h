// What a call of an operation costs, whatever computes it: one function an operation, and the one place where
// flops and bytes are counted. `annulus plan` turns them into seconds.
#pragma once
#include <string>
#include <vector>
#include "ops/moe.h"
#include "ops/ops.h"

namespace annulus {

/// Flops are those of matrix products (2 M N K), of visible pairs alone in attention: 4 H D a pair forward,
/// 10 H D backward. Bytes: each input read once, each output written once.
struct Cost {
  const char* kind = "?";  // its row in tables; operations of one kind are added up
  std::string rate;        // what a rates file calls it (ops/dry/rates.h)
  double flops = 0;
  double bytes = 0;
  double size = 0;  // where the rate depends on it: keys that a query sees
};

Cost cost(const EmbedFwd&);
Cost cost(const EmbedBwd&);
Cost cost(const RmsNormFwd&);
Cost cost(const RmsNormBwd&);
Cost cost(const Matmul&);
Cost cost(const ColumnSum&);
Cost cost(const QkRopeFwd&);
Cost cost(const QkRopeBwd&);
std::vector<Cost> cost(const AttentionFwd&);  // by block
Cost cost(const AttentionDelta&);
std::vector<Cost> cost(const AttentionBwd&);
Cost cost(const SwigluFwd&);
Cost cost(const SwigluBwd&);
Cost cost(const LossTile&);
Cost cost(const Sum&);
Cost cost(const Add&);
Cost cost(const Cast&);
Cost cost(const AdamW&);

Cost cost(const RouteFwd&);
Cost cost(const RouteBwd&);
Cost cost(const RouteCount&);
Cost cost(const DispatchIndex&);
Cost cost(const ExpertIndex&);
Cost cost(const GatherRows&);
Cost cost(const CombineRows&);
Cost cost(const ExpertSwigluBwd&);
Cost cost(const GroupedMatmul&);

}  // namespace annulus
