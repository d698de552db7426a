#include <boost/test/unit_test.hpp>
#include <cmath>
#include "ops/cpu/blas.h"
#include "ops/matmul_cases.h"
#include "support/judge.h"

namespace annulus::test {
namespace {

constexpr double kSumError = 4 * kF32;

struct Inputs {
  Floats a, b, add, bias;
};

struct Answer {
  Doubles c, magnitude;  // the sum, and the sum of absolute values
};

Answer exact(const MatmulCase& s, const Inputs& in) {
  const auto M = static_cast<std::size_t>(s.M), N = static_cast<std::size_t>(s.N),
             K = static_cast<std::size_t>(s.K);
  Answer r{Doubles(M * N, 0.0), Doubles(M * N, 0.0)};
  const auto plus = [&](std::size_t i, double v) {
    r.c[i] += v;
    r.magnitude[i] += std::abs(v);
  };
  for (std::size_t m = 0; m < M; ++m) {
    for (std::size_t k = 0; k < K; ++k) {
      const double a = s.scale * (s.trans_a ? in.a[k * M + m] : in.a[m * K + k]);
      for (std::size_t n = 0; n < N; ++n)
        plus(m * N + n, a * (s.trans_b ? in.b[n * K + k] : in.b[k * N + n]));
    }
    for (std::size_t n = 0; n < N; ++n) {
      if (s.add) plus(m * N + n, in.add[m * N + n]);
      if (s.bias) plus(m * N + n, in.bias[n]);
    }
  }
  return r;
}

Inputs inputs(const MatmulCase& s, DType T, DType out) {
  return {random_values(T, 1, {s.M, s.K}), random_values(T, 2, {s.K, s.N}),
          random_values(out, 3, {s.M, s.N}, 5.0), random_values(T, 4, s.N, 5.0)};
}

Tensor call(Device& d, const MatmulCase& s, const Inputs& in, DType T, DType out) {
  Matmul a;
  a.a = s.trans_a ? d.in("a", T, {s.K, s.M}, in.a, s.gap) : d.in("a", T, {s.M, s.K}, in.a, s.gap);
  a.b = s.trans_b ? d.in("b", T, {s.N, s.K}, in.b, s.gap) : d.in("b", T, {s.K, s.N}, in.b, s.gap);
  if (s.add) a.add = d.in("add", out, {s.M, s.N}, in.add, s.gap);
  if (s.bias) a.bias = d.in("bias", T, {s.N}, in.bias);
  a.c = s.in_place ? a.add : d.out("c", out, {s.M, s.N}, s.gap);
  a.trans_a = s.trans_a;
  a.trans_b = s.trans_b;
  a.scale = s.scale;
  d.ops().matmul(Lane::compute, a);
  return a.c;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(ops)

// Sums in f32, in any order, err by far less than K half-ulps of the terms' sum: measured 0.6 of this bound.
BOOST_AUTO_TEST_CASE(matmul_of_any_shape_and_stride) {
  struct Types {
    DType in, out;
  };
  for (const auto& [T, out] :
       {Types{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
    for (const MatmulCase& s : kMatmulCases) {
      const Inputs in = inputs(s, T, out);
      const Answer want = exact(s, in);
      hold(s.why,
           [&, type = T, out_type = out](Device& d) { return std::vector{call(d, s, in, type, out_type)}; },
           {rounded_once("c", out, want.c, [&](std::size_t i) { return kSumError * want.magnitude[i]; })});
    }
}

// The cut of sizes beyond int, at a size that a test can hold.
BOOST_AUTO_TEST_CASE(gemm_in_pieces_equals_gemm_at_once) {
  constexpr std::int64_t M = 23, N = 17, K = 31;
  const Floats a = random_values(DType::f32, 1, M * K), b = random_values(DType::f32, 2, K * N);
  for (const bool trans_a : {false, true})
    for (const bool trans_b : {false, true}) {
      Floats whole = random_values(DType::f32, 3, M * N), cut = whole;
      ref::Gemm g{.trans_a = trans_a,
                  .trans_b = trans_b,
                  .M = M,
                  .N = N,
                  .K = K,
                  .alpha = 0.5f,
                  .a = a.data(),
                  .lda = trans_a ? M : K,
                  .b = b.data(),
                  .ldb = trans_b ? K : N,
                  .beta = 2.f,
                  .c = whole.data(),
                  .ldc = N};
      ref::gemm(g);
      g.c = cut.data();
      ref::gemm(g, 7);
      double error = 0.0;
      for (std::size_t i = 0; i < whole.size(); ++i)
        error = std::max(error, std::abs(double(whole[i]) - cut[i]));
      BOOST_TEST(error < 1e-5);
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace annulus::test
