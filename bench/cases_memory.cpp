// Operations that are bound by memory. `amount` counts bytes: 2 an element of bf16, 4 of f32 and i32, 8 of
// i64.
#include <algorithm>
#include <cmath>
#include <numeric>
#include "cases.h"
#include "core/rng.h"

namespace annulus::bench {
namespace {

std::string by(std::initializer_list<std::int64_t> shape) {
  std::string text;
  for (const std::int64_t n : shape) text += (text.empty() ? "" : " x ") + std::to_string(n);
  return text;
}

double product(std::initializer_list<std::int64_t> factors) {
  return std::accumulate(factors.begin(), factors.end(), 1.0, std::multiplies<double>());
}

std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t below) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i)
    ids.push_back(
        static_cast<std::int32_t>(draw(1, Draw::test, 0, static_cast<std::uint64_t>(i))[0] % below));
  return ids;
}

std::int64_t distinct(std::vector<std::int32_t> ids) {
  std::sort(ids.begin(), ids.end());
  return std::unique(ids.begin(), ids.end()) - ids.begin();
}

std::vector<std::int32_t> order_of(const std::vector<std::int32_t>& ids) {
  std::vector<std::int32_t> order(ids.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return ids[static_cast<std::size_t>(a)] < ids[static_cast<std::size_t>(b)];
  });
  return order;
}

void embeddings(const Sizes& s, std::vector<Case>& all) {
  const std::vector<std::int32_t> ids = random_ids(s.N, s.V);
  const std::int64_t rows = distinct(ids);  // of the table that are touched
  const std::string shape = by({s.N, s.C}) + ", " + std::to_string(rows) + " rows of the table";
  // ids 4 N, the table's rows 2 C each, y 2 N C
  all.push_back({Kind::memory, "embed_fwd", shape, product({4, s.N}) + product({2, rows + s.N, s.C}),
                 s.least_seconds, [=](Backend& b, Pool& p) {
                   const EmbedFwd a{.ids = p.upload("ids", ids),
                                    .table = p.normal("table", DType::bf16, {s.V, s.C}),
                                    .y = p.empty("y", DType::bf16, {s.N, s.C})};
                   return Work{[&b, a] { b.ops().embed_fwd(Lane::compute, a); }, {a.y}};
                 }});
  // ids and order 8 N, dy 2 N C, the gradient's rows in f32 read and written 8 C each
  all.push_back({Kind::memory, "embed_bwd", shape,
                 product({8, s.N}) + product({2, s.N, s.C}) + product({8, rows, s.C}), s.least_seconds,
                 [=](Backend& b, Pool& p) {
                   const EmbedBwd a{.ids = p.upload("ids", ids),
                                    .order = p.upload("order", order_of(ids)),
                                    .dy = p.normal("dy", DType::bf16, {s.N, s.C}),
                                    .dtable = p.normal("dtable", DType::f32, {s.V, s.C})};
                   return Work{[&b, a] { b.ops().embed_bwd(Lane::compute, a); }, {a.dtable}};
                 }});
}

void norms(const Sizes& s, std::vector<Case>& all) {
  // x and y 2 N C each, rstd 4 N, w 2 C
  all.push_back({Kind::memory, "rmsnorm_fwd", by({s.N, s.C}),
                 product({4, s.N, s.C}) + product({4, s.N}) + product({2, s.C}), s.least_seconds,
                 [=](Backend& b, Pool& p) {
                   const RmsNormFwd a{.x = p.normal("x", DType::bf16, {s.N, s.C}),
                                      .w = p.normal("w", DType::bf16, {s.C}),
                                      .y = p.empty("y", DType::bf16, {s.N, s.C}),
                                      .rstd = p.empty("rstd", DType::f32, {s.N})};
                   return Work{[&b, a] { b.ops().rmsnorm_fwd(Lane::compute, a); }, {a.y, a.rstd}};
                 }});
  // dy, x, dres and dx 2 N C each, rstd 4 N, w 2 C, dw read and written 8 C
  all.push_back({Kind::memory, "rmsnorm_bwd", by({s.N, s.C}),
                 product({8, s.N, s.C}) + product({4, s.N}) + product({10, s.C}), s.least_seconds,
                 [=](Backend& b, Pool& p) {
                   const RmsNormBwd a{.dy = p.normal("dy", DType::bf16, {s.N, s.C}),
                                      .x = p.normal("x", DType::bf16, {s.N, s.C}),
                                      .w = p.normal("w", DType::bf16, {s.C}),
                                      .rstd = p.squares("rstd", DType::f32, {s.N}),
                                      .dres = p.normal("dres", DType::bf16, {s.N, s.C}),
                                      .dx = p.empty("dx", DType::bf16, {s.N, s.C}),
                                      .dw = p.normal("dw", DType::f32, {s.C})};
                   return Work{[&b, a] { b.ops().rmsnorm_bwd(Lane::compute, a); }, {a.dx, a.dw}};
                 }});
  // x 2 N O, the sums read and written 8 O
  const std::int64_t O = s.heads() * s.D;
  all.push_back({Kind::memory, "column_sum", by({s.N, O}), product({2, s.N, O}) + product({8, O}),
                 s.least_seconds, [=](Backend& b, Pool& p) {
                   const ColumnSum a{.x = p.normal("x", DType::bf16, {s.N, O}),
                                     .out = p.normal("out", DType::f32, {O})};
                   return Work{[&b, a] { b.ops().column_sum(Lane::compute, a); }, {a.out}};
                 }});
}

struct Rope {
  Tensor qkv, q_norm, k_norm, positions, inv_freq;
};

Rope rope_inputs(const Sizes& s, Pool& p) {
  constexpr double kTheta = 1e6;
  std::vector<std::int64_t> positions(static_cast<std::size_t>(s.N));
  std::iota(positions.begin(), positions.end(), std::int64_t{0});
  std::vector<double> inv;
  for (std::int64_t i = 0; i < s.D; i += 2)
    inv.push_back(std::pow(kTheta, -static_cast<double>(i) / static_cast<double>(s.D)));
  return {p.normal("qkv", DType::bf16, {s.N, s.heads(), s.D}), p.normal("q_norm", DType::bf16, {s.D}),
          p.normal("k_norm", DType::bf16, {s.D}), p.upload("positions", positions),
          p.upload("inv_freq", inv)};
}

void ropes(const Sizes& s, std::vector<Case>& all) {
  const std::string shape = by({s.N, s.heads(), s.D});
  // qkv, q and kv: 4 an element of qkv; positions 8 N
  all.push_back({Kind::memory, "qk_rope_fwd", shape, product({4, s.N, s.heads(), s.D}) + product({8, s.N}),
                 s.least_seconds, [=](Backend& b, Pool& p) {
                   const Rope r = rope_inputs(s, p);
                   const QkRopeFwd a{.qkv = r.qkv,
                                     .q_norm = r.q_norm,
                                     .k_norm = r.k_norm,
                                     .positions = r.positions,
                                     .inv_freq = r.inv_freq,
                                     .q = p.empty("q", DType::bf16, {s.N, s.H, s.D}),
                                     .kv = p.empty("kv", DType::bf16, {2, s.N, s.G, s.D})};
                   return Work{[&b, a] { b.ops().qk_rope_fwd(Lane::compute, a); }, {a.q, a.kv}};
                 }});
  for (const DType type : {DType::bf16, DType::f32}) {  // f32: the sums that a ring's attention leaves
    // dq and dkv in `type`, q and k of qkv (v is not needed) 2, dqkv 2; positions 8 N
    const double bytes = product({bytes_of(type) + 2, s.N, s.heads(), s.D}) +
                         product({2, s.N, s.H + s.G, s.D}) + product({8, s.N});
    all.push_back(
        {Kind::memory, std::string("qk_rope_bwd.") + name_of(type), shape, bytes, s.least_seconds,
         [=](Backend& b, Pool& p) {
           const Rope r = rope_inputs(s, p);
           const QkRopeBwd a{.dq = p.normal("dq", type, {s.N, s.H, s.D}),
                             .dkv = p.normal("dkv", type, {2, s.N, s.G, s.D}),
                             .qkv = r.qkv,
                             .q_norm = r.q_norm,
                             .k_norm = r.k_norm,
                             .positions = r.positions,
                             .inv_freq = r.inv_freq,
                             .dqkv = p.empty("dqkv", DType::bf16, {s.N, s.heads(), s.D}),
                             .dq_norm = p.normal("dq_norm", DType::f32, {s.D}),
                             .dk_norm = p.normal("dk_norm", DType::f32, {s.D})};
           return Work{[&b, a] { b.ops().qk_rope_bwd(Lane::compute, a); }, {a.dqkv, a.dq_norm, a.dk_norm}};
         }});
  }
  // o and d_o 2 an element each, delta 4 N H
  all.push_back({Kind::memory, "attention_delta", by({s.N, s.H, s.D}),
                 product({4, s.N, s.H, s.D}) + product({4, s.N, s.H}), s.least_seconds,
                 [=](Backend& b, Pool& p) {
                   const AttentionDelta a{.o = p.normal("o", DType::bf16, {s.N, s.H, s.D}),
                                          .d_o = p.normal("d_o", DType::bf16, {s.N, s.H, s.D}),
                                          .delta = p.empty("delta", DType::f32, {s.H, s.N})};
                   return Work{[&b, a] { b.ops().attention_delta(Lane::compute, a); }, {a.delta}};
                 }});
}

void mlp_and_loss(const Sizes& s, std::vector<Case>& all) {
  // gu 4 N F, h 2 N F
  all.push_back({Kind::memory, "swiglu_fwd", by({s.N, s.F}), product({6, s.N, s.F}), s.least_seconds,
                 [=](Backend& b, Pool& p) {
                   const SwigluFwd a{.gu = p.normal("gu", DType::bf16, {s.N, 2 * s.F}),
                                     .h = p.empty("h", DType::bf16, {s.N, s.F})};
                   return Work{[&b, a] { b.ops().swiglu_fwd(Lane::compute, a); }, {a.h}};
                 }});
  // gu and dgu 4 N F each, dh and h 2 N F each
  all.push_back({Kind::memory, "swiglu_bwd", by({s.N, s.F}), product({12, s.N, s.F}), s.least_seconds,
                 [=](Backend& b, Pool& p) {
                   const SwigluBwd a{.gu = p.normal("gu", DType::bf16, {s.N, 2 * s.F}),
                                     .dh = p.normal("dh", DType::bf16, {s.N, s.F}),
                                     .h = p.empty("h", DType::bf16, {s.N, s.F}),
                                     .dgu = p.empty("dgu", DType::bf16, {s.N, 2 * s.F})};
                   return Work{[&b, a] { b.ops().swiglu_bwd(Lane::compute, a); }, {a.h, a.dgu}};
                 }});
  // logits read and written 4 n V; targets, nll, hit and entropy 4 n each
  const std::int64_t n = s.loss_tile;
  all.push_back({Kind::memory, "loss_tile", by({n, s.V}), product({4, n, s.V}) + product({16, n}),
                 s.least_seconds, [=](Backend& b, Pool& p) {
                   const Tensor logits = p.normal("pristine logits", DType::bf16, {n, s.V});
                   const LossTile a{.logits = p.empty("logits", DType::bf16, {n, s.V}),
                                    .targets = p.upload("targets", random_ids(n, s.V)),
                                    .nll = p.empty("nll", DType::f32, {n}),
                                    .hit = p.empty("hit", DType::f32, {n}),
                                    .entropy = p.empty("entropy", DType::f32, {n}),
                                    .scale = 1.0 / static_cast<double>(s.N)};
                   return Work{
                       .run = [&b, a] { b.ops().loss_tile(Lane::compute, a); },
                       .outputs = {a.logits, a.nll, a.entropy},
                       .before = [&b, a, logits] { b.queue().copy(Lane::compute, logits, a.logits); }};
                 }});
}

void flat(const Sizes& s, std::vector<Case>& all) {
  const std::int64_t n = s.layer();
  const std::string shape = by({n});
  const auto name = [](const char* op, DType a, DType b) {
    return std::string(op) + "." + name_of(a) + "_" + name_of(b);
  };
  for (const DType type : {DType::bf16, DType::f32})  // x
    all.push_back({Kind::memory, std::string("sum.squares_") + name_of(type), shape,
                   product({bytes_of(type), n}), s.least_seconds, [=](Backend& b, Pool& p) {
                     const Sum a{.x = p.normal("x", type, {n}),
                                 .out = p.upload("out", std::vector<double>{1.0}),
                                 .squares = true};
                     return Work{[&b, a] { b.ops().sum(Lane::compute, a); }, {a.out}};
                   }});
  using Types = std::pair<DType, DType>;
  for (const auto& [from, to] :
       {Types{DType::bf16, DType::bf16}, Types{DType::bf16, DType::f32}, Types{DType::f32, DType::f32}})
    // x, y read and written
    all.push_back({Kind::memory, name("add", from, to), shape,
                   product({bytes_of(from) + 2 * bytes_of(to), n}), s.least_seconds,
                   [=, x_type = from, y_type = to](Backend& b, Pool& p) {
                     const Add a{.x = p.normal("x", x_type, {n}), .y = p.normal("y", y_type, {n})};
                     return Work{[&b, a] { b.ops().add(Lane::compute, a); }, {a.y}};
                   }});
  for (const auto& [from, to] : {Types{DType::f32, DType::bf16}, Types{DType::bf16, DType::f32}})
    all.push_back({Kind::memory, name("cast", from, to), shape, product({bytes_of(from) + bytes_of(to), n}),
                   s.least_seconds, [=, from_type = from, to_type = to](Backend& b, Pool& p) {
                     const Cast a{.from = p.normal("from", from_type, {n}),
                                  .to = p.empty("to", to_type, {n})};
                     return Work{[&b, a] { b.ops().cast(Lane::compute, a); }, {a.to}};
                   }});
  for (const DType type : {DType::bf16, DType::f32})
    // the gradient, in the state's type; weight, m and v read and written
    all.push_back({Kind::memory, std::string("adamw.") + name_of(type), shape,
                   product({7, bytes_of(type), n}), s.least_seconds, [=](Backend& b, Pool& p) {
                     const AdamW a{.grad = p.normal("grad", type, {n}),
                                   .master = p.normal("master", type, {n}),
                                   .m = p.normal("m", type, {n}),
                                   .v = p.squares("v", type, {n}),
                                   .lr = 1e-5,
                                   .decay = 0.1,
                                   .step = 100};
                     return Work{[&b, a] { b.ops().adamw(Lane::compute, a); }, {a.master, a.m, a.v}};
                   }});
}

}  // namespace

std::vector<Case> memory_cases(const Sizes& s) {
  std::vector<Case> all;
  embeddings(s, all);
  norms(s, all);
  ropes(s, all);
  mlp_and_loss(s, all);
  flat(s, all);
  return all;
}

}  // namespace annulus::bench
