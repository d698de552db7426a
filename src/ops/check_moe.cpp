// Checks of the mixture-of-experts operations (ops/moe.h).
#include "ops/check.h"
#include "ops/check_tensor.h"

namespace annulus {

using namespace checks;

void check(const RouteFwd& a) {
  rank(a.logits, 2);
  rank(a.ids, 2);
  const std::int64_t N = a.logits.shape[0], E = a.logits.shape[1], K = a.ids.shape[1];
  whole(a.logits, DType::f32, {N, E});
  whole(a.valid, DType::i32, {N});
  whole(a.ids, DType::i32, {N, K});
  whole(a.weights, DType::f32, {N, K});
  whole_or_null(a.picked, DType::f64, {E});
  whole_or_null(a.probability, DType::f64, {E});
  need(K >= 1 && K <= E, "route: a token has from one expert to all of them");
}

void check(const RouteBwd& a) {
  rank(a.logits, 2);
  rank(a.ids, 2);
  const std::int64_t N = a.logits.shape[0], E = a.logits.shape[1], K = a.ids.shape[1];
  whole(a.logits, DType::f32, {N, E});
  whole(a.ids, DType::i32, {N, K});
  whole(a.dweights, DType::f32, {N, K});
  whole_or_null(a.aux, DType::f64, {E});
  whole(a.dlogits, compute(a.dlogits), {N, E});
  need(K >= 1 && K <= E, "route: a token has from one expert to all of them");
}

void check(const RouteCount& a) {
  rank(a.ids, 2);
  rank(a.experts, 2);
  rank(a.rows, 2);
  const std::int64_t N = a.ids.shape[0], E = a.experts.shape[1], R = a.rows.shape[1];
  need(a.range >= 1, "route_count: a sub-range has at least one token");
  need(R >= 1 && E >= 1 && E % R == 0, "route_count: the ranks do not divide the experts");
  const std::int64_t ranges = (N + a.range - 1) / a.range;
  whole(a.ids, DType::i32, {N, a.ids.shape[1]});
  whole(a.experts, DType::i64, {ranges, E});
  whole(a.rows, DType::i64, {ranges, R});
}

void check(const DispatchIndex& a) {
  rank(a.ids, 2);
  rank(a.token, 1);
  rank(a.place, 2);
  const std::int64_t N = a.ids.shape[0], K = a.ids.shape[1], S = a.token.shape[0];
  whole(a.ids, DType::i32, {N, K});
  whole(a.weights, DType::f32, {N, K});
  whole(a.token, DType::i32, {S});
  whole(a.slots, DType::i32, {S, K});
  whole(a.shares, DType::f32, {S, K});
  whole(a.place, DType::i32, {N, a.place.shape[1]});
  need(a.experts >= 1, "dispatch_index: a rank has at least one expert");
  need(N < (std::int64_t{1} << 31) && S < (std::int64_t{1} << 31), "dispatch_index: rows are counted in i32");
}

void check(const ExpertIndex& a) {
  rank(a.slots, 2);
  rank(a.row, 1);
  const std::int64_t M = a.slots.shape[0], K = a.slots.shape[1], P = a.row.shape[0];
  whole(a.slots, DType::i32, {M, K});
  whole(a.shares, DType::f32, {M, K});
  whole(a.row, DType::i32, {P});
  whole(a.share, DType::f32, {P});
  whole(a.place, DType::i32, {M, K});
  need(a.experts >= 1, "expert_index: a rank has at least one expert");
  need(M < (std::int64_t{1} << 31) && P < (std::int64_t{1} << 31), "expert_index: rows are counted in i32");
}

void check(const GatherRows& a) {
  rank(a.x, 2);
  rank(a.index, 1);
  const std::int64_t I = a.index.shape[0], C = a.x.shape[1];
  need(a.x.dtype == DType::f32 || a.x.dtype == DType::bf16 || a.x.dtype == DType::i32,
       std::string(a.x.name) + ": dtype is " + name_of(a.x.dtype) + ", not f32, bf16 or i32");
  whole(a.x, a.x.dtype, {a.x.shape[0], C});
  whole(a.index, DType::i32, {I});
  whole(a.y, a.x.dtype, {I, C});
}

void check(const CombineRows& a) {
  const DType T = compute(a.x);
  rank(a.x, 2);
  rank(a.index, 2);
  const std::int64_t N = a.index.shape[0], J = a.index.shape[1], C = a.x.shape[1];
  whole(a.x, T, {a.x.shape[0], C});
  whole(a.index, DType::i32, {N, J});
  whole_or_null(a.weights, DType::f32, {N, J});
  whole_or_null(a.add, T, {N, C});
  whole(a.y, T, {N, C});
}

void check(const ExpertSwigluBwd& a) {
  const DType T = compute(a.gu);
  rank(a.dh, 2);
  const std::int64_t P = a.dh.shape[0], F = a.dh.shape[1];
  whole(a.gu, T, {P, 2 * F});
  whole(a.dh, T, {P, F});
  whole(a.share, DType::f32, {P});
  whole_or_null(a.h, T, {P, F});
  whole(a.dshare, DType::f32, {P});
  whole(a.dgu, T, {P, 2 * F});
}

void check(const GroupedMatmul& a) {
  const DType T = compute(a.a);
  rank(a.a, 2);
  const std::int64_t P = a.a.shape[0];
  std::int64_t experts = 0;
  if (a.gradient) {
    need(!a.trans_b, "grouped matmul: rows x rows has nothing to transpose");
    need(!a.add, "grouped matmul: rows x rows always adds");
    rank(a.b, 2);
    rank(a.c, 3);
    experts = a.c.shape[0];
    const std::int64_t M = a.c.shape[1], N = a.c.shape[2];
    whole(a.a, T, {P, M});
    whole(a.b, T, {P, N});
    whole(a.c, DType::f32, {experts, M, N});
  } else {
    rank(a.b, 3);
    rank(a.c, 2);
    experts = a.b.shape[0];
    const std::int64_t K = a.a.shape[1], N = a.c.shape[1];
    whole(a.a, T, {P, K});
    if (a.trans_b)
      whole(a.b, T, {experts, N, K});
    else
      whole(a.b, T, {experts, K, N});
    whole(a.c, T, {P, N});
  }
  need(std::int64_t(a.offsets.size()) == experts + 1, "grouped matmul: there are " +
                                                          std::to_string(a.offsets.size()) + " offsets for " +
                                                          std::to_string(experts) + " experts");
  need(a.offsets.front() >= 0 && a.offsets.back() <= P, "grouped matmul: offsets beyond the rows");
  for (std::size_t e = 0; e + 1 < a.offsets.size(); ++e)
    need(a.offsets[e] <= a.offsets[e + 1], "grouped matmul: offsets decrease");
}

}  // namespace annulus
