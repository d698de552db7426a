// Single-precision matrix products by whatever CBLAS the program is linked with.
#pragma once
#include <cstdint>
#include <string>

namespace annulus::ref {

/// c (M, N) = alpha * op(a) op(b) + beta * c; row-major; ld* are elements from one stored row to the next.
struct Gemm {
  bool trans_a = false, trans_b = false;
  std::int64_t M = 0, N = 0, K = 0;
  float alpha = 1.f;
  const float* a = nullptr;
  std::int64_t lda = 0;
  const float* b = nullptr;
  std::int64_t ldb = 0;
  float beta = 0.f;
  float* c = nullptr;
  std::int64_t ldc = 0;
};

/// Sizes of zero are allowed. CBLAS counts in int: M, N and K are cut into pieces of at most `limit`.
void gemm(const Gemm&, std::int64_t limit = std::int64_t{1} << 30);

/// Sets the number of threads that BLAS uses. Returns what was found, for the log: "OpenBLAS 0.3.21 ..., 1
/// thread".
std::string set_blas_threads(int threads);

}  // namespace annulus::ref
