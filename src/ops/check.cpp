#include "ops/check.h"
#include "ops/check_tensor.h"

namespace annulus {
namespace {

using namespace checks;

struct Heads {
  std::int64_t N, H, G, D;
};

Heads heads_of(const Tensor& q, const Tensor& k) {
  rank(q, 3);
  rank(k, 3);
  const Heads s{q.shape[0], q.shape[1], k.shape[1], q.shape[2]};
  need(s.G > 0 && s.H % s.G == 0, std::string(q.name) + ": query heads are no multiple of the key heads");
  return s;
}

void check_blocks(std::span<const AttentionBlock> blocks, std::int64_t Tq, std::int64_t Tk) {
  for (const AttentionBlock& b : blocks) {
    need(b.q_at >= 0 && b.q_count >= 0 && b.q_at + b.q_count <= Tq, "attention block: queries out of range");
    need(b.k_at >= 0 && b.k_count >= 0 && b.k_at + b.k_count <= Tk, "attention block: keys out of range");
    need(b.cover != Cover::causal || (b.q_count == b.k_count && b.q_position == b.k_position),
         "attention block: a causal block is square and has one position");
    need(b.cover != Cover::full || b.k_count == 0 || b.q_position >= b.k_position + b.k_count - 1,
         "attention block: a full block has its keys before its queries");
  }
}

void check_rope(const Tensor& qkv, const Tensor& positions, const Tensor& inv_freq, const Tensor& q_norm,
                const Tensor& k_norm, const Tensor& q, const Tensor& kv) {
  const DType T = compute(qkv);
  rank(q, 3);
  rank(kv, 4);
  rank(inv_freq, 1);
  const std::int64_t N = q.shape[0], H = q.shape[1], G = kv.shape[2], D = q.shape[2], R = inv_freq.shape[0];
  whole(qkv, T, {N, H + 2 * G, D});
  whole(q, f32_or(q, T), {N, H, D});
  whole(kv, f32_or(kv, T), {2, N, G, D});
  whole(positions, DType::i64, {N});
  whole(inv_freq, DType::f64, {R});
  need(2 * R <= D, "inv_freq: more frequencies than half the head size");
  whole_or_null(q_norm, T, {D});
  whole_or_null(k_norm, T, {D});
}

}  // namespace

void check(const EmbedFwd& a) {
  const DType T = compute(a.table);
  rank(a.table, 2);
  rank(a.ids, 1);
  const std::int64_t N = a.ids.shape[0], V = a.table.shape[0], C = a.table.shape[1];
  whole(a.ids, DType::i32, {N});
  whole(a.table, T, {V, C});
  whole(a.y, T, {N, C});
}

void check(const EmbedBwd& a) {
  const DType T = compute(a.dy);
  rank(a.dy, 2);
  rank(a.dtable, 2);
  const std::int64_t N = a.dy.shape[0], C = a.dy.shape[1];
  whole(a.ids, DType::i32, {N});
  whole(a.order, DType::i32, {N});
  whole(a.dy, T, {N, C});
  whole(a.dtable, DType::f32, {a.dtable.shape[0], C});
}

void check(const RmsNormFwd& a) {
  const DType T = compute(a.x);
  rank(a.x, 2);
  const std::int64_t N = a.x.shape[0], C = a.x.shape[1];
  whole(a.x, T, {N, C});
  whole(a.w, T, {C});
  whole(a.y, T, {N, C});
  whole(a.rstd, DType::f32, {N});
}

void check(const RmsNormBwd& a) {
  const DType T = compute(a.x);
  rank(a.x, 2);
  const std::int64_t N = a.x.shape[0], C = a.x.shape[1];
  whole(a.dy, T, {N, C});
  whole(a.x, T, {N, C});
  whole(a.w, T, {C});
  whole(a.rstd, DType::f32, {N});
  whole_or_null(a.dres, T, {N, C});
  whole(a.dx, T, {N, C});
  whole_or_null(a.dw, DType::f32, {C});
}

void check(const Matmul& a) {
  const DType T = compute(a.a);
  rank(a.a, 2);
  rank(a.b, 2);
  const std::int64_t M = a.a.shape[a.trans_a ? 1 : 0], K = a.a.shape[a.trans_a ? 0 : 1];
  const std::int64_t N = a.b.shape[a.trans_b ? 0 : 1];
  rows(a.a, T, {a.a.shape[0], a.a.shape[1]});
  if (a.trans_b)
    rows(a.b, T, {N, K});
  else
    rows(a.b, T, {K, N});
  rows(a.c, f32_or(a.c, T), {M, N});
  if (a.add) rows(a.add, a.c.dtype, {M, N});
  need(a.add.data != a.c.data || !a.add || a.add.stride() == a.c.stride(),
       "matmul: add is c with another stride");
  whole_or_null(a.bias, T, {N});
}

void check(const ColumnSum& a) {
  rank(a.x, 2);
  rows(a.x, compute(a.x), {a.x.shape[0], a.x.shape[1]});
  whole(a.out, DType::f32, {a.x.shape[1]});
}

void check(const QkRopeFwd& a) {
  check_rope(a.qkv, a.positions, a.inv_freq, a.q_norm, a.k_norm, a.q, a.kv);
  need(a.q.dtype == a.qkv.dtype && a.kv.dtype == a.qkv.dtype, "qk_rope: q and kv have qkv's type");
}

void check(const QkRopeBwd& a) {
  check_rope(a.qkv, a.positions, a.inv_freq, a.q_norm, a.k_norm, a.dq, a.dkv);
  const std::int64_t D = a.qkv.shape[2];
  whole(a.dqkv, a.qkv.dtype, {a.qkv.shape[0], a.qkv.shape[1], D});
  whole_or_null(a.dq_norm, DType::f32, {D});
  whole_or_null(a.dk_norm, DType::f32, {D});
  need((!a.dq_norm || a.q_norm) && (!a.dk_norm || a.k_norm),
       "qk_rope: gradient of a weight that is not there");
}

void check(const AttentionFwd& a, std::int64_t workspace_bytes) {
  const DType T = compute(a.q);
  const auto [Tq, H, G, D] = heads_of(a.q, a.k);
  const std::int64_t Tk = a.k.shape[0];
  rows(a.q, T, {Tq, H, D});
  rows(a.k, T, {Tk, G, D});
  rows(a.v, T, {Tk, G, D});
  whole(a.first, DType::i64, {Tq});
  need(a.acc || Tq == 0 || (a.begins && a.ends && a.blocks.size() == 1),
       "attention: acc may be missing only when one call with one block does it all");
  whole_or_null(a.acc, DType::f32, {Tq, H, D});
  whole(a.lse, DType::f32, {H, Tq});
  if (a.ends) rows(a.o, T, {Tq, H, D});
  check_blocks(a.blocks, Tq, Tk);
  need(workspace_bytes == 0 || a.workspace.bytes() >= workspace_bytes, "attention: workspace too small");
}

void check(const AttentionDelta& a) {
  const DType T = compute(a.o);
  rank(a.o, 3);
  rows(a.o, T, {a.o.shape[0], a.o.shape[1], a.o.shape[2]});
  rows(a.d_o, T, {a.o.shape[0], a.o.shape[1], a.o.shape[2]});
  whole(a.delta, DType::f32, {a.o.shape[1], a.o.shape[0]});
}

void check(const AttentionBwd& a, std::int64_t workspace_bytes) {
  const DType T = compute(a.q);
  const auto [Tq, H, G, D] = heads_of(a.q, a.k);
  const std::int64_t Tk = a.k.shape[0];
  rows(a.q, T, {Tq, H, D});
  rows(a.k, T, {Tk, G, D});
  rows(a.v, T, {Tk, G, D});
  rows(a.o, T, {Tq, H, D});
  rows(a.d_o, T, {Tq, H, D});
  whole(a.lse, DType::f32, {H, Tq});
  whole(a.delta, DType::f32, {H, Tq});
  whole(a.first, DType::i64, {Tq});
  const DType out = f32_or(a.dq, T);
  rows(a.dq, out, {Tq, H, D});
  rows(a.dk, out, {Tk, G, D});
  rows(a.dv, out, {Tk, G, D});
  need(out == DType::f32 || (a.blocks.size() == 1 && a.blocks[0].q_count == Tq && a.blocks[0].k_count == Tk),
       "attention: gradients below f32 need one block that covers all rows");
  check_blocks(a.blocks, Tq, Tk);
  need(workspace_bytes == 0 || a.workspace.bytes() >= workspace_bytes, "attention: workspace too small");
}

void check(const SwigluFwd& a) {
  const DType T = compute(a.gu);
  rank(a.h, 2);
  const std::int64_t N = a.h.shape[0], F = a.h.shape[1];
  whole(a.gu, T, {N, 2 * F});
  whole(a.h, T, {N, F});
}

void check(const SwigluBwd& a) {
  const DType T = compute(a.gu);
  rank(a.dh, 2);
  const std::int64_t N = a.dh.shape[0], F = a.dh.shape[1];
  whole(a.gu, T, {N, 2 * F});
  whole(a.dh, T, {N, F});
  whole_or_null(a.h, T, {N, F});
  whole(a.dgu, T, {N, 2 * F});
}

void check(const LossTile& a) {
  rank(a.logits, 2);
  const std::int64_t N = a.logits.shape[0];
  whole(a.logits, compute(a.logits), {N, a.logits.shape[1]});
  whole(a.targets, DType::i32, {N});
  whole(a.nll, DType::f32, {N});
  whole_or_null(a.hit, DType::f32, {N});
  whole_or_null(a.entropy, DType::f32, {N});
}

void check(const Sum& a) {
  rank(a.x, 1);
  whole(a.x, compute(a.x), {a.x.shape[0]});
  whole(a.out, DType::f64, {1});
}

void check(const Add& a) {
  rank(a.x, 1);
  whole(a.x, compute(a.x), {a.x.shape[0]});
  whole(a.y, compute(a.y), {a.x.shape[0]});
}

void check(const Cast& a) {
  rank(a.from, 1);
  whole(a.from, compute(a.from), {a.from.shape[0]});
  whole(a.to, compute(a.to), {a.from.shape[0]});
}

void check(const AdamW& a) {
  rank(a.master, 1);
  const std::int64_t n = a.master.shape[0];
  const DType state = compute(a.master);
  whole(a.grad, compute(a.grad), {n});
  whole(a.master, state, {n});
  whole(a.m, state, {n});
  whole(a.v, state, {n});
  if (a.weight) whole(a.weight, compute(a.weight), {n});
  need(a.step >= 1, "adamw: steps count from 1");
  need(a.parameter < (std::uint64_t{1} << 20), "adamw: parameter numbers stay below 2^20");
}

void check_copy(const Tensor& from, const Tensor& to) {
  need(from.rank == to.rank && from.shape == to.shape, std::string(to.name) + ": copy from another shape");
  need(from.dtype == to.dtype, std::string(to.name) + ": copy from another dtype");
}

}  // namespace annulus
