// Matrix products through BLAS in f32. Below f32, operands are widened tile by tile.
#include <algorithm>
#include <vector>
#include "ops/cpu/blas.h"
#include "ops/cpu/loops.h"
#include "ops/cpu/reference.h"

namespace annulus::ref {
namespace {

struct Shape {
  std::int64_t M, N, K;
};

Shape shape_of(const Matmul& a) {
  return {a.c.shape[0], a.c.shape[1], a.a.shape[a.trans_a ? 0 : 1]};
}

/// Rows [m, m + M) and columns [n, n + N) of add + bias, in f32. Returns whether there was anything to add.
template <class T, class Out>
bool start(const Matmul& a, std::int64_t m, std::int64_t M, std::int64_t n, std::int64_t N, float* c,
           std::int64_t ldc) {
  if (!a.add && !a.bias) return false;
  const T* bias = a.bias ? a.bias.as<T>() + n : nullptr;
  for (std::int64_t i = 0; i < M; ++i) {
    const Out* add = a.add ? a.add.as<Out>() + (m + i) * a.add.stride() + n : nullptr;
    float* row = c + i * ldc;
    for (std::int64_t j = 0; j < N; ++j)
      row[j] = (add != nullptr ? widen(add[j]) : 0.f) + (bias != nullptr ? widen(bias[j]) : 0.f);
  }
  return true;
}

/// Rows [r, r + R) and columns [c, c + C) of x, widened.
void widen_tile(const Tensor& x, std::int64_t r, std::int64_t R, std::int64_t c, std::int64_t C, float* to) {
  for (std::int64_t i = 0; i < R; ++i) load(x.as<bf16>() + (r + i) * x.stride() + c, C, to + i * C);
}

void matmul_f32(const Matmul& a) {
  const auto [M, N, K] = shape_of(a);
  float* c = a.c.as<float>();
  const bool more = start<float, float>(a, 0, M, 0, N, c, a.c.stride());
  gemm({.trans_a = a.trans_a,
        .trans_b = a.trans_b,
        .M = M,
        .N = N,
        .K = K,
        .alpha = static_cast<float>(a.scale),
        .a = a.a.as<float>(),
        .lda = a.a.stride(),
        .b = a.b.as<float>(),
        .ldb = a.b.stride(),
        .beta = more ? 1.f : 0.f,
        .c = c,
        .ldc = a.c.stride()});
}

template <class Out>
void matmul_bf16(const Matmul& a) {
  constexpr std::int64_t kM = 256, kN = 512, kK = 1024;
  const auto [M, N, K] = shape_of(a);
  std::vector<float> ta(kM * kK), tb(kK * kN), tc(kM * kN);
  for (std::int64_t m = 0; m < M; m += kM)
    for (std::int64_t n = 0; n < N; n += kN) {
      const std::int64_t mm = std::min(kM, M - m), nn = std::min(kN, N - n);
      if (!start<bf16, Out>(a, m, mm, n, nn, tc.data(), nn)) std::fill(tc.begin(), tc.end(), 0.f);
      for (std::int64_t k = 0; k < K; k += kK) {
        const std::int64_t kk = std::min(kK, K - k);
        if (a.trans_a)
          widen_tile(a.a, k, kk, m, mm, ta.data());
        else
          widen_tile(a.a, m, mm, k, kk, ta.data());
        if (a.trans_b)
          widen_tile(a.b, n, nn, k, kk, tb.data());
        else
          widen_tile(a.b, k, kk, n, nn, tb.data());
        gemm({.trans_a = a.trans_a,
              .trans_b = a.trans_b,
              .M = mm,
              .N = nn,
              .K = kk,
              .alpha = static_cast<float>(a.scale),
              .a = ta.data(),
              .lda = a.trans_a ? mm : kk,
              .b = tb.data(),
              .ldb = a.trans_b ? kk : nn,
              .beta = 1.f,
              .c = tc.data(),
              .ldc = nn});
      }
      for (std::int64_t i = 0; i < mm; ++i)
        save(tc.data() + i * nn, nn, a.c.as<Out>() + (m + i) * a.c.stride() + n);
    }
}

}  // namespace

void matmul(const Matmul& a) {
  if (a.a.dtype == DType::f32)
    matmul_f32(a);
  else if (a.c.dtype == DType::f32)
    matmul_bf16<float>(a);
  else
    matmul_bf16<bf16>(a);
}

}  // namespace annulus::ref
