#include "ops/cost.h"
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string_view>

namespace annulus {
namespace {

double bytes_of_all(std::initializer_list<Tensor> tensors) {
  double sum = 0;
  for (const Tensor& t : tensors)
    if (t) sum += static_cast<double>(t.bytes());
  return sum;
}

double number(std::int64_t n) {
  return static_cast<double>(n);
}

/// An operation that is bound by memory.
Cost moves(const char* kind, std::string rate, std::initializer_list<Tensor> once,
           std::initializer_list<Tensor> read_and_written = {}) {
  return {kind, std::move(rate), 0, bytes_of_all(once) + 2 * bytes_of_all(read_and_written), 0};
}

std::string typed(const char* name, DType type) {
  return std::string(name) + "." + name_of(type);
}

/// "matmul" in the compute type, "matmul_into_f32" where products of bf16 are added up in f32.
Cost multiplies(const char* kind, const char* wide_kind, const char* rate, const Tensor& a, const Tensor& c,
                double flops, double bytes) {
  const bool wide = c.dtype == DType::f32 && a.dtype != DType::f32;
  const char* suffix = wide ? "_into_f32" : a.dtype == DType::f32 ? "_f32" : "";
  return {wide ? wide_kind : kind, std::string(rate) + suffix, flops, bytes, 0};
}

std::vector<Cost> attends(const char* kind, const char* rate, std::span<const AttentionBlock> blocks,
                          double flops_a_pair) {
  std::vector<Cost> all;
  for (const AttentionBlock& b : blocks) {
    const double pairs = number(b.pairs), queries = number(std::max<std::int64_t>(1, b.q_count));
    const char* cover = b.cover == Cover::full ? ".full" : b.cover == Cover::causal ? ".causal" : ".partial";
    // Of a full block the side of the square that has as many pairs, of a causal one its own side.
    const double size =
        b.cover == Cover::partial ? pairs / queries : std::sqrt(b.cover == Cover::causal ? 2 * pairs : pairs);
    all.push_back({kind, std::string(rate) + cover, flops_a_pair * pairs, 0, size});
  }
  return all;
}

}  // namespace

Cost cost(const EmbedFwd& a) {
  return moves("embedding", "embed_fwd", {a.ids, a.y, a.y});
}

Cost cost(const EmbedBwd& a) {
  Cost c = moves("embedding", "embed_bwd", {a.ids, a.order, a.dy});
  const std::int64_t rows = std::min(a.dy.shape[0], a.dtable.shape[0]);
  c.bytes += 2 * number(rows * a.dy.shape[1] * bytes_of(DType::f32));
  return c;
}

Cost cost(const RmsNormFwd& a) {
  return moves("norm", "rmsnorm_fwd", {a.x, a.w, a.y, a.rstd});
}

Cost cost(const RmsNormBwd& a) {
  return moves("norm", "rmsnorm_bwd", {a.dy, a.x, a.w, a.rstd, a.dres, a.dx}, {a.dw});
}

Cost cost(const Matmul& a) {
  const std::int64_t M = a.c.shape[0], N = a.c.shape[1], K = a.a.shape[a.trans_a ? 0 : 1];
  return multiplies("matmul", "matmul into f32", "matmul", a.a, a.c, 2 * number(M) * number(N) * number(K),
                    bytes_of_all({a.a, a.b, a.c, a.add, a.bias}));
}

Cost cost(const ColumnSum& a) {
  return moves("bias", "column_sum", {a.x}, {a.out});
}

Cost cost(const QkRopeFwd& a) {
  return moves("rope", "qk_rope_fwd", {a.qkv, a.q, a.kv, a.positions});
}

Cost cost(const QkRopeBwd& a) {
  Cost c = moves("rope", typed("qk_rope_bwd", a.dq.dtype), {a.dq, a.dkv, a.dqkv, a.positions});
  c.bytes += number((a.dq.size() + a.dkv.size() / 2) * bytes_of(a.qkv.dtype));  // of qkv, v is not read
  return c;
}

std::vector<Cost> cost(const AttentionFwd& a) {
  return attends("attention forward", "attention_fwd", a.blocks, 4 * number(a.q.shape[1] * a.q.shape[2]));
}

Cost cost(const AttentionDelta& a) {
  return moves("attention delta", "attention_delta", {a.o, a.d_o, a.delta});
}

std::vector<Cost> cost(const AttentionBwd& a) {
  return attends("attention backward", "attention_bwd", a.blocks, 10 * number(a.q.shape[1] * a.q.shape[2]));
}

Cost cost(const SwigluFwd& a) {
  return moves("swiglu", "swiglu_fwd", {a.gu, a.h});
}

Cost cost(const SwigluBwd& a) {
  return moves("swiglu", "swiglu_bwd", {a.gu, a.dh, a.h, a.dgu});
}

Cost cost(const LossTile& a) {
  return moves("loss", "loss_tile", {a.targets, a.nll, a.hit, a.entropy}, {a.logits});
}

Cost cost(const Sum& a) {
  return moves("sums", std::string("sum.squares_") + name_of(a.x.dtype), {a.x});  // squaring costs nothing
}

Cost cost(const Add& a) {
  return moves("gradient sums", typed("add", a.x.dtype) + "_" + name_of(a.y.dtype), {a.x}, {a.y});
}

Cost cost(const Cast& a) {
  return moves("casts", typed("cast", a.from.dtype) + "_" + name_of(a.to.dtype), {a.from, a.to});
}

Cost cost(const AdamW& a) {
  return moves("optimizer", typed("adamw", a.master.dtype), {a.grad, a.weight}, {a.master, a.m, a.v});
}

Cost cost(const RouteFwd& a) {
  return moves("router", "route_fwd", {a.logits, a.valid, a.ids, a.weights}, {a.picked, a.probability});
}

Cost cost(const RouteBwd& a) {
  return moves("router", "route_bwd", {a.logits, a.ids, a.dweights, a.aux, a.dlogits});
}

Cost cost(const RouteCount& a) {
  return moves("dispatch indices", "route_count", {a.ids, a.experts, a.rows});
}

Cost cost(const DispatchIndex& a) {
  return moves("dispatch indices", "dispatch_index", {a.ids, a.weights, a.token, a.slots, a.shares, a.place});
}

Cost cost(const ExpertIndex& a) {
  return moves("dispatch indices", "expert_index", {a.slots, a.shares, a.row, a.share, a.place});
}

Cost cost(const GatherRows& a) {
  return moves("gather rows", "gather_rows", {a.index, a.y, a.y});
}

Cost cost(const CombineRows& a) {
  Cost c = moves("combine rows", "combine_rows", {a.index, a.weights, a.add, a.y});
  c.bytes += bytes_of_all({a.x});  // an expanded row is read once, for the token that sent it
  return c;
}

Cost cost(const ExpertSwigluBwd& a) {
  return moves("swiglu", "expert_swiglu_bwd", {a.gu, a.dh, a.share, a.h, a.dshare, a.dgu});
}

Cost cost(const GroupedMatmul& a) {
  const std::int64_t P = a.a.shape[0], K = a.a.shape[1], N = a.gradient ? a.b.shape[1] : a.c.shape[1];
  return multiplies("grouped matmul", "grouped matmul into f32", "grouped_matmul", a.a, a.c,
                    2 * number(P) * number(K) * number(N),
                    bytes_of_all({a.a, a.b, a.c, a.add ? a.c : Tensor{}}));
}

}  // namespace annulus
