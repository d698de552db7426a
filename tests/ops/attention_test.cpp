#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include "ops/attention_cases.h"

namespace annulus::test {
namespace {

Tensor put(Device& d, const char* name, DType T, const AttentionInputs& in, std::int64_t heads,
           const Doubles& x, std::int64_t gap = 0) {
  const std::int64_t rows = static_cast<std::int64_t>(x.size()) / (heads * in.D);
  return d.in(name, T, {rows, heads, in.D}, to_floats(x, T), gap);
}

AttentionFwd forward_call(Device& d, DType T, const AttentionInputs& in, std::int64_t gap, bool with_acc) {
  AttentionFwd a;
  a.q = put(d, "q", T, in, in.H, in.q, gap);
  a.k = put(d, "k", T, in, in.G, in.k, gap);
  a.v = put(d, "v", T, in, in.G, in.v, gap);
  a.first = d.in("first", {in.Tq}, in.first);
  a.blocks = in.blocks;
  if (with_acc) a.acc = d.out("acc", DType::f32, {in.Tq, in.H, in.D});
  a.lse = d.out("lse", DType::f32, {in.H, in.Tq});
  a.o = d.out("o", T, {in.Tq, in.H, in.D}, gap);
  a.begins = a.ends = true;
  a.scale = in.scale;
  a.workspace = d.bytes("workspace", d.ops().attention_fwd_bytes(a));
  return a;
}

std::vector<Expected> expected_fwd(DType T, const AttentionInputs& in, const AttentionOutputs& want) {
  double largest_v = 0.0;
  for (const double v : in.v) largest_v = std::max(largest_v, std::abs(v));
  const auto HD = static_cast<std::size_t>(in.H * in.D), D = static_cast<std::size_t>(in.D);
  const auto o_slack = [&](std::size_t i) {
    const std::size_t row = i / HD, h = i % HD / D;
    return score_error(want.magnitude[h * static_cast<std::size_t>(in.Tq) + row], in.D) * largest_v;
  };
  const auto lse_slack = [&](std::size_t i) { return score_error(want.magnitude[i], in.D); };
  Expected lse = rounded_once("lse", DType::f32, want.lse, lse_slack);
  return {rounded_once("o", T, want.o, o_slack), lse};
}

/// The same with weights rounded to bf16, as low-precision kernels do.
std::vector<Floats> low_precision_fwd(DType T, AttentionInputs in) {
  in.round_weights = T == DType::bf16;
  const AttentionOutputs r = plain_attention(in);
  return {to_floats(r.o, T), to_floats(r.lse)};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(ops)

BOOST_AUTO_TEST_CASE(attention_fwd_over_one_block) {
  for (const DType T : kTypes)
    for (const AttentionCase& c : attention_cases()) {
      const AttentionInputs in = attention_inputs(c, T);
      const AttentionOutputs want = plain_attention(in);
      for (const bool with_acc : {false, true})
        hold(
            c.why,
            [&](Device& d) {
              const AttentionFwd a = forward_call(d, T, in, c.gap, with_acc);
              d.ops().attention_fwd(Lane::compute, a);
              return std::vector{a.o, a.lse};
            },
            expected_fwd(T, in, want), low_precision_fwd(T, in));
    }
}

BOOST_AUTO_TEST_CASE(attention_cases_hold_extreme_scores) {
  double lowest = 0.0, highest = 0.0;
  bool unseen = false;
  for (const AttentionCase& c : attention_cases())
    for (const double lse : plain_attention(attention_inputs(c, DType::f32)).lse) {
      if (std::isinf(lse))
        unseen = true;
      else
        lowest = std::min(lowest, lse), highest = std::max(highest, lse);
    }
  BOOST_TEST(lowest < -200.0);
  BOOST_TEST(highest > 200.0);
  BOOST_TEST(unseen);
}

BOOST_AUTO_TEST_CASE(attention_without_blocks_gives_zeros) {
  AttentionInputs in = attention_inputs(attention_cases()[1], DType::f32);
  in.blocks.clear();
  hold(
      "no block",
      [&](Device& d) {
        const AttentionFwd a = forward_call(d, DType::f32, in, 0, true);
        d.ops().attention_fwd(Lane::compute, a);
        return std::vector{a.o, a.lse};
      },
      expected_fwd(DType::f32, in, plain_attention(in)));
}

BOOST_AUTO_TEST_CASE(attention_delta_is_the_dot_of_o_and_its_gradient) {
  for (const DType T : kTypes)
    for (const AttentionCase& c : attention_cases()) {
      AttentionInputs in = attention_inputs(c, T);
      const Doubles o = to_doubles(random_values(T, 6, {in.Tq, in.H, in.D}));
      const Doubles d_o = to_doubles(random_values(T, 7, {in.Tq, in.H, in.D}));
      hold(c.why,
           [&](Device& d) {
             AttentionDelta a;
             a.o = put(d, "o", T, in, in.H, o, c.gap);
             a.d_o = put(d, "d_o", T, in, in.H, d_o, c.gap);
             a.delta = d.out("delta", DType::f32, {in.H, in.Tq});
             d.ops().attention_delta(Lane::compute, a);
             return std::vector{a.delta};
           },
           {rounded_once("delta", DType::f32, plain_delta(in, o, d_o), 1e-12)});
    }
}

BOOST_AUTO_TEST_CASE(attention_bwd_over_one_block) {
  struct Types {
    DType T, gradient;
  };
  for (const auto& [type, gradient_type] :
       {Types{DType::f32, DType::f32}, {DType::bf16, DType::f32}, {DType::bf16, DType::bf16}})
    for (const AttentionCase& c : attention_cases()) {
      const DType T = type, G = gradient_type;
      const AttentionInputs in = attention_inputs(c, T);
      const AttentionOutputs fwd = plain_attention(in);
      const Doubles o = to_doubles(to_floats(fwd.o, T)),
                    d_o = to_doubles(random_values(T, 7, {in.Tq, in.H, in.D}));
      const Floats lse = to_floats(fwd.lse), delta = to_floats(plain_delta(in, o, d_o));
      AttentionGradients want = plain_attention_bwd(in, d_o, to_doubles(lse), to_doubles(delta));
      AttentionInputs low = in;
      low.round_weights = T == DType::bf16;
      AttentionGradients plain = plain_attention_bwd(low, d_o, to_doubles(lse), to_doubles(delta));

      double magnitude = 0.0;  // of scores, over all rows
      for (const double m : fwd.magnitude) magnitude = std::max(magnitude, m);
      // dP - delta cancels where a query sees one key: what is left is the rounding of both, in BLAS's own
      // order.
      const auto expect = [&](const char* name, const Doubles& exact, const Doubles& terms) {
        return rounded_once(name, G, exact, [&](std::size_t i) {
          return score_error(magnitude, in.D) * terms[i] + 8 * kF32;
        });
      };
      const double before = G == DType::f32 ? 0.25 : 0.0;  // f32 gradients are added to what is there
      for (Doubles* x : {&want.dq, &want.dk, &want.dv, &plain.dq, &plain.dk, &plain.dv})
        for (double& v : *x) v += before;
      hold(
          c.why,
          [&](Device& d) {
            AttentionBwd a;
            a.q = put(d, "q", T, in, in.H, in.q, c.gap);
            a.k = put(d, "k", T, in, in.G, in.k, c.gap);
            a.v = put(d, "v", T, in, in.G, in.v, c.gap);
            a.o = put(d, "o", T, in, in.H, o, c.gap);
            a.d_o = put(d, "d_o", T, in, in.H, d_o, c.gap);
            a.lse = d.in("lse", DType::f32, {in.H, in.Tq}, lse);
            a.delta = d.in("delta", DType::f32, {in.H, in.Tq}, delta);
            a.first = d.in("first", {in.Tq}, in.first);
            a.blocks = in.blocks;
            const auto gradient = [&](const char* name, std::int64_t rows, std::int64_t heads) {
              return G == DType::bf16 ? d.out(name, G, {rows, heads, in.D})
                                      : d.in(name, G, {rows, heads, in.D},
                                             Floats(static_cast<std::size_t>(rows * heads * in.D), 0.25f));
            };
            a.dq = gradient("dq", in.Tq, in.H);
            a.dk = gradient("dk", in.Tk, in.G);
            a.dv = gradient("dv", in.Tk, in.G);
            a.scale = in.scale;
            a.workspace = d.bytes("workspace", d.ops().attention_bwd_bytes(a));
            d.ops().attention_bwd(Lane::compute, a);
            return std::vector{a.dq, a.dk, a.dv};
          },
          {expect("dq", want.dq, want.dq_terms), expect("dk", want.dk, want.dk_terms),
           expect("dv", want.dv, want.dv_terms)},
          std::vector{to_floats(plain.dq, G), to_floats(plain.dk, G), to_floats(plain.dv, G)});
    }
}

BOOST_AUTO_TEST_CASE(attention_bwd_is_the_derivative) {
  const AttentionCase c{"small", 4, 2, 3, 2, 9, 0, 11, Cover::partial, {4}, 5};
  const AttentionInputs in = attention_inputs(c, DType::f32);
  const Doubles d_o = to_doubles(random_values(DType::f32, 7, {in.Tq, in.H, in.D}));
  const AttentionOutputs fwd = plain_attention(in);
  const AttentionGradients g = plain_attention_bwd(in, d_o, fwd.lse, plain_delta(in, fwd.o, d_o));
  const auto error = [&](Doubles AttentionInputs::*which, const Doubles& analytic) {
    return gradient_error(
        [&](const Doubles& x) {
          AttentionInputs moved = in;
          moved.*which = x;
          const Doubles o = plain_attention(moved).o;
          double sum = 0.0;
          for (std::size_t i = 0; i < o.size(); ++i) sum += o[i] * d_o[i];
          return sum;
        },
        in.*which, analytic);
  };
  BOOST_TEST(error(&AttentionInputs::q, g.dq) < 1e-8);
  BOOST_TEST(error(&AttentionInputs::k, g.dk) < 1e-8);
  BOOST_TEST(error(&AttentionInputs::v, g.dv) < 1e-8);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace annulus::test
