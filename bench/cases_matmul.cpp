// The matrix products of a layer and of the head, as src/model calls them. `amount` counts 2 M N K flop.
#include "cases.h"

namespace annulus::bench {
namespace {

constexpr double kWeightScale = 0.02;  // as trained weights have it

/// y (N, out) = x (N, in) w^T.
struct Linear {
  const char* name;
  std::int64_t N, in, out;
  bool residual;  // the forward adds what goes round the block
};

std::string shape_of(std::int64_t M, std::int64_t N, std::int64_t K) {
  return "M " + std::to_string(M) + ", N " + std::to_string(N) + ", K " + std::to_string(K);
}

Work work_of(Backend& b, const Matmul& a) {
  return {[&b, a] { b.ops().matmul(Lane::compute, a); }, {a.c}};
}

void add_linear(const Sizes& s, const Linear& l, std::vector<Case>& all) {
  const double flop = 2.0 * static_cast<double>(l.N) * static_cast<double>(l.in) * static_cast<double>(l.out);
  const std::string name = std::string("matmul.") + l.name;
  const auto x = [l](Pool& p) { return p.normal("x", DType::bf16, {l.N, l.in}); };
  const auto w = [l](Pool& p) { return p.normal("w", DType::bf16, {l.out, l.in}, kWeightScale); };
  const auto dy = [l](Pool& p) { return p.normal("dy", DType::bf16, {l.N, l.out}); };
  all.push_back({Kind::matmul, name + ".forward", shape_of(l.N, l.out, l.in), flop, s.least_seconds,
                 [=](Backend& b, Pool& p) {
                   const Tensor none{};
                   return work_of(b,
                                  {.a = x(p),
                                   .b = w(p),
                                   .c = p.empty("y", DType::bf16, {l.N, l.out}),
                                   .add = l.residual ? p.normal("residual", DType::bf16, {l.N, l.out}) : none,
                                   .trans_b = true});
                 }});
  all.push_back({Kind::matmul, name + ".dx", shape_of(l.N, l.in, l.out), flop, s.least_seconds,
                 [=](Backend& b, Pool& p) {
                   return work_of(b, {.a = dy(p), .b = w(p), .c = p.empty("dx", DType::bf16, {l.N, l.in})});
                 }});
  all.push_back({Kind::matmul, name + ".dw_f32", shape_of(l.out, l.in, l.N), flop, s.least_seconds,
                 [=](Backend& b, Pool& p) {
                   const Tensor dw = p.normal("dw", DType::f32, {l.out, l.in});
                   return work_of(b, {.a = dy(p), .b = x(p), .c = dw, .add = dw, .trans_a = true});
                 }});
}

}  // namespace

std::vector<Case> matmul_cases(const Sizes& s) {
  std::vector<Case> all;
  add_linear(s, {"qkv", s.N, s.C, s.heads() * s.D, false}, all);
  add_linear(s, {"o", s.N, s.H * s.D, s.C, true}, all);
  add_linear(s, {"gate_up", s.N, s.C, 2 * s.F, false}, all);
  add_linear(s, {"down", s.N, s.F, s.C, true}, all);
  add_linear(s, {"head", s.loss_tile, s.C, s.V, false}, all);
  return all;
}

}  // namespace annulus::bench
