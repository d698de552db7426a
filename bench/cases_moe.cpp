// Operations of mixture-of-experts layers. `amount` counts bytes (2 an element of bf16, 4 of f32 and i32), or
// 2 M N K flop.
#include <algorithm>
#include <memory>
#include <set>
#include "cases.h"
#include "core/rng.h"
#include "ops/moe_products.h"

namespace annulus::bench {
namespace {

using Ints = std::vector<std::int32_t>;

constexpr double kWeightScale = 0.02;  // as trained weights have it
constexpr std::int64_t kRanks = 8;     // that the experts are spread over
constexpr double kLeastLoad = 0.5;     // rows of the expert that has fewest, of the mean

double product(std::initializer_list<std::int64_t> factors) {
  double all = 1;
  for (const std::int64_t f : factors) all *= static_cast<double>(f);
  return all;
}

double unit(std::uint64_t stream, std::int64_t i) {
  return unit_interval(draw(2, Draw::test, stream, static_cast<std::uint64_t>(i))[0]);
}

/// K different experts for each token, all equally likely.
Ints random_experts(const Sizes& s) {
  Ints ids;
  for (std::int64_t n = 0; n < s.N; ++n) {
    const std::size_t first = ids.size();
    for (std::int64_t i = 0; std::ssize(ids) < (n + 1) * s.K; ++i) {
      const auto id = static_cast<std::int32_t>(unit(static_cast<std::uint64_t>(n), i) * double(s.E));
      if (std::find(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end(), id) == ids.end())
        ids.push_back(id);
    }
  }
  return ids;
}

/// Rows that a tile of all tokens sends: one for each token and rank with an expert of its own.
std::int64_t rows_to_send(const Ints& ids, const Sizes& s, std::int64_t ranks) {
  std::int64_t rows = 0;
  for (std::int64_t n = 0; n < s.N; ++n) {
    std::set<std::int64_t> to;
    for (std::int64_t k = 0; k < s.K; ++k)
      to.insert(ids[static_cast<std::size_t>(n * s.K + k)] / (s.E / ranks));
    rows += std::ssize(to);
  }
  return rows;
}

/// The expanded rows by expert, each the number of its token; and where each token's rows are.
struct Expanded {
  Ints row, place;
};
Expanded expanded(const Ints& ids, const Sizes& s) {
  Expanded x{{}, Ints(ids.size())};
  for (std::int32_t e = 0; e < s.E; ++e)
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] != e) continue;
      x.place[i] = static_cast<std::int32_t>(x.row.size());
      x.row.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(i) / s.K));
    }
  return x;
}

void routing(const Sizes& s, const Ints& ids, std::vector<Case>& all) {
  const std::string shape =
      std::to_string(s.N) + " tokens, " + std::to_string(s.K) + " of " + std::to_string(s.E) + " experts";
  // logits 4 N E, valid 4 N, ids and weights 8 N K
  all.push_back(
      {Kind::memory, "route_fwd", shape, product({4, s.N, s.E + 1}) + product({8, s.N, s.K}), s.least_seconds,
       [=](Backend& b, Pool& p) {
         const auto E = static_cast<std::size_t>(s.E);
         const RouteFwd a{.logits = p.normal("logits", DType::f32, {s.N, s.E}),
                          .valid = p.upload("valid", Ints(static_cast<std::size_t>(s.N), 1)),
                          .ids = p.empty("ids", DType::i32, {s.N, s.K}),
                          .weights = p.empty("weights", DType::f32, {s.N, s.K}),
                          .picked = p.upload("picked", std::vector<double>(E, 1.0)),
                          .probability = p.upload("probability", std::vector<double>(E, 1.0)),
                          .normalize = true};
         return Work{[&b, a] { b.ops().route_fwd(Lane::compute, a); }, {a.weights, a.picked, a.probability}};
       }});
  // logits 4 N E, ids and dweights 8 N K, dlogits 2 N E
  all.push_back({Kind::memory, "route_bwd", shape, product({6, s.N, s.E}) + product({8, s.N, s.K}),
                 s.least_seconds, [=](Backend& b, Pool& p) {
                   const auto E = static_cast<std::size_t>(s.E);
                   const RouteBwd a{.logits = p.normal("logits", DType::f32, {s.N, s.E}),
                                    .ids = p.upload("ids", ids).view({s.N, s.K}),
                                    .dweights = p.normal("dweights", DType::f32, {s.N, s.K}),
                                    .aux = p.upload("aux", std::vector<double>(E, 1e-3)),
                                    .dlogits = p.empty("dlogits", DType::bf16, {s.N, s.E}),
                                    .normalize = true};
                   return Work{[&b, a] { b.ops().route_bwd(Lane::compute, a); }, {a.dlogits}};
                 }});
  // ids 4 N K
  all.push_back(
      {Kind::memory, "route_count", shape, product({4, s.N, s.K}), s.least_seconds, [=](Backend& b, Pool& p) {
         const std::int64_t ranks = std::min(kRanks, s.E), range = std::max<std::int64_t>(s.N / 16, 1),
                            ranges = (s.N + range - 1) / range;
         const RouteCount a{.ids = p.upload("ids", ids).view({s.N, s.K}),
                            .experts = p.empty("experts", DType::i64, {ranges, s.E}),
                            .rows = p.empty("rows", DType::i64, {ranges, ranks}),
                            .range = range};
         return Work{[&b, a] { b.ops().route_count(Lane::compute, a); }, {}};
       }});
}

void indices(const Sizes& s, const Ints& ids, std::vector<Case>& all) {
  const std::int64_t ranks = std::min(kRanks, s.E);
  const std::int64_t S = rows_to_send(ids, s, ranks);
  // ids and weights 8 N K, slots and shares 8 S K, token 4 S, place 4 N R
  all.push_back(
      {Kind::memory, "dispatch_index",
       std::to_string(s.N) + " tokens to " + std::to_string(ranks) + " ranks, " + std::to_string(S) + " rows",
       product({8, s.N + S, s.K}) + product({4, S}) + product({4, s.N, ranks}), s.least_seconds,
       [=](Backend& b, Pool& p) {
         const DispatchIndex a{.ids = p.upload("ids", ids).view({s.N, s.K}),
                               .weights = p.normal("weights", DType::f32, {s.N, s.K}),
                               .token = p.empty("token", DType::i32, {S}),
                               .slots = p.empty("slots", DType::i32, {S, s.K}),
                               .shares = p.empty("shares", DType::f32, {S, s.K}),
                               .place = p.empty("place", DType::i32, {s.N, ranks}),
                               .experts = s.E / ranks};
         return Work{[&b, a] { b.ops().dispatch_index(Lane::compute, a); }, {a.shares}};
       }});
  const std::int64_t P = s.N * s.K;
  // slots, shares and place 12 P, row and share 8 P
  all.push_back({Kind::memory, "expert_index",
                 std::to_string(P) + " pairs, " + std::to_string(s.E) + " experts", product({20, P}),
                 s.least_seconds, [=](Backend& b, Pool& p) {
                   const ExpertIndex a{.slots = p.upload("slots", ids).view({s.N, s.K}),
                                       .shares = p.normal("shares", DType::f32, {s.N, s.K}),
                                       .row = p.empty("row", DType::i32, {P}),
                                       .share = p.empty("share", DType::f32, {P}),
                                       .place = p.empty("place", DType::i32, {s.N, s.K}),
                                       .experts = s.E};
                   return Work{[&b, a] { b.ops().expert_index(Lane::compute, a); }, {a.share}};
                 }});
}

void rows(const Sizes& s, const Ints& ids, std::vector<Case>& all) {
  const std::int64_t P = s.N * s.K, C = s.moe_C, F = s.moe_F;
  const std::string shape =
      std::to_string(s.N) + " x " + std::to_string(C) + ", " + std::to_string(P) + " expanded";
  // x 2 N C, index 4 P, y 2 P C
  all.push_back({Kind::memory, "gather_rows", shape, product({2, s.N + P, C}) + product({4, P}),
                 s.least_seconds, [=](Backend& b, Pool& p) {
                   const GatherRows a{.x = p.normal("x", DType::bf16, {s.N, C}),
                                      .index = p.upload("index", expanded(ids, s).row),
                                      .y = p.empty("y", DType::bf16, {P, C})};
                   return Work{[&b, a] { b.ops().gather_rows(Lane::compute, a); }, {a.y}};
                 }});
  // x 2 P C, index and weights 8 P, add and y 4 N C
  all.push_back({Kind::memory, "combine_rows", shape, product({2, P + 2 * s.N, C}) + product({8, P}),
                 s.least_seconds, [=](Backend& b, Pool& p) {
                   const CombineRows a{.x = p.normal("x", DType::bf16, {P, C}),
                                       .index = p.upload("index", expanded(ids, s).place).view({s.N, s.K}),
                                       .weights = p.normal("weights", DType::f32, {s.N, s.K}),
                                       .add = p.normal("add", DType::bf16, {s.N, C}),
                                       .y = p.empty("y", DType::bf16, {s.N, C})};
                   return Work{[&b, a] { b.ops().combine_rows(Lane::compute, a); }, {a.y}};
                 }});
  // gu and dgu 4 P F each, dh and h 2 P F each, share and dshare 8 P
  all.push_back(
      {Kind::memory, "expert_swiglu_bwd", std::to_string(P) + " x " + std::to_string(F),
       product({12, P, F}) + product({8, P}), s.least_seconds, [=](Backend& b, Pool& p) {
         const ExpertSwigluBwd a{.gu = p.normal("gu", DType::bf16, {P, 2 * F}),
                                 .dh = p.normal("dh", DType::bf16, {P, F}),
                                 .share = p.normal("share", DType::f32, {P}),
                                 .h = p.empty("h", DType::bf16, {P, F}),
                                 .dshare = p.empty("dshare", DType::f32, {P}),
                                 .dgu = p.empty("dgu", DType::bf16, {P, 2 * F})};
         return Work{[&b, a] { b.ops().expert_swiglu_bwd(Lane::compute, a); }, {a.h, a.dshare, a.dgu}};
       }});
}

/// Where each expert's rows begin: uneven, `rows` in all.
std::vector<std::int64_t> uneven_offsets(std::int64_t rows, std::int64_t experts) {
  std::vector<double> loads;
  double sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) sum += loads.emplace_back(kLeastLoad + unit(1, e));
  std::vector<std::int64_t> offsets{0};
  double so_far = 0;
  for (const double load : loads)
    offsets.push_back(static_cast<std::int64_t>(double(rows) * ((so_far += load) / sum)));
  offsets.back() = rows;
  return offsets;
}

/// A product of every expert's rows; what it says and what one product an expert takes.
void add_product(const Sizes& s, const std::string& name, std::int64_t rows, std::int64_t in,
                 std::int64_t out, bool gradient, bool trans_b, std::vector<Case>& all) {
  const std::string shape = std::to_string(rows) + " rows, " + std::to_string(s.E) + " experts, N " +
                            std::to_string(out) + ", K " + std::to_string(in);
  for (const bool one_by_one : {false, true})
    all.push_back(
        {Kind::matmul, "grouped_matmul." + name + (one_by_one ? ".one_by_one" : ""), shape,
         product({2, rows, in, out}), s.least_seconds, [=](Backend& b, Pool& p) {
           const auto offsets = std::make_shared<std::vector<std::int64_t>>(uneven_offsets(rows, s.E));
           GroupedMatmul a;
           a.a = p.normal("a", DType::bf16, {rows, in});
           if (gradient) {
             a.b = p.normal("b", DType::bf16, {rows, out});
             a.c = p.normal("c", DType::f32, {s.E, in, out});
           } else {
             a.b = trans_b ? p.normal("b", DType::bf16, {s.E, out, in}, kWeightScale)
                           : p.normal("b", DType::bf16, {s.E, in, out}, kWeightScale);
             a.c = p.empty("c", DType::bf16, {rows, out});
           }
           a.gradient = gradient;
           a.trans_b = trans_b;
           return Work{[&b, a, offsets, one_by_one] {
                         GroupedMatmul now = a;
                         now.offsets = *offsets;
                         if (!one_by_one) return b.ops().grouped_matmul(Lane::compute, now);
                         for_each_product(now, [&](const Matmul& m) { b.ops().matmul(Lane::compute, m); });
                       },
                       {a.c}};
         }});
}

}  // namespace

std::vector<Case> moe_memory_cases(const Sizes& s) {
  const Ints ids = random_experts(s);
  std::vector<Case> all;
  routing(s, ids, all);
  indices(s, ids, all);
  rows(s, ids, all);
  return all;
}

std::vector<Case> moe_matmul_cases(const Sizes& s) {
  std::vector<Case> all;
  for (const std::int64_t rows : {s.N * s.K / 4, s.N * s.K}) {
    const std::string size = "." + std::to_string(rows);
    // gate and up together; a weight lies as (out, in), so its gradient is dy' x.
    add_product(s, "gate_up.forward" + size, rows, s.moe_C, 2 * s.moe_F, false, true, all);
    add_product(s, "gate_up.dx" + size, rows, 2 * s.moe_F, s.moe_C, false, false, all);
    add_product(s, "gate_up.dw_f32" + size, rows, 2 * s.moe_F, s.moe_C, true, false, all);
    add_product(s, "down.forward" + size, rows, s.moe_F, s.moe_C, false, true, all);
    add_product(s, "down.dx" + size, rows, s.moe_C, s.moe_F, false, false, all);
    add_product(s, "down.dw_f32" + size, rows, s.moe_C, s.moe_F, true, false, all);
  }
  return all;
}

}  // namespace annulus::bench
