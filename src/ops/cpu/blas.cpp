#include "ops/cpu/blas.h"
#include <cblas.h>
#include <dlfcn.h>
#include <algorithm>
#include <limits>
#include "core/check.h"

namespace annulus::ref {
namespace {

int narrow_ld(std::int64_t ld) {
  need(ld <= std::numeric_limits<int>::max(), "gemm: a row is longer than BLAS can count");
  return static_cast<int>(std::max<std::int64_t>(ld, 1));
}

/// A function of a library that may or may not be there.
template <class F>
F* find(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace

void gemm(const Gemm& g, std::int64_t limit) {
  const auto ta = g.trans_a ? CblasTrans : CblasNoTrans, tb = g.trans_b ? CblasTrans : CblasNoTrans;
  for (std::int64_t m = 0; m < g.M; m += limit)
    for (std::int64_t n = 0; n < g.N; n += limit) {
      const std::int64_t M = std::min(limit, g.M - m), N = std::min(limit, g.N - n);
      float* c = g.c + m * g.ldc + n;
      if (g.K == 0) {
        for (std::int64_t i = 0; i < M; ++i)
          for (std::int64_t j = 0; j < N; ++j)
            c[i * g.ldc + j] = g.beta == 0.f ? 0.f : g.beta * c[i * g.ldc + j];
      }
      for (std::int64_t k = 0; k < g.K; k += limit) {
        const std::int64_t K = std::min(limit, g.K - k);
        const float* a = g.a + (g.trans_a ? k * g.lda + m : m * g.lda + k);
        const float* b = g.b + (g.trans_b ? n * g.ldb + k : k * g.ldb + n);
        cblas_sgemm(CblasRowMajor, ta, tb, static_cast<int>(M), static_cast<int>(N), static_cast<int>(K),
                    g.alpha, a, narrow_ld(g.lda), b, narrow_ld(g.ldb), k == 0 ? g.beta : 1.f, c,
                    narrow_ld(g.ldc));
      }
    }
}

std::string set_blas_threads(int threads) {
  std::string name = "BLAS";
  // A BLAS built on OpenMP takes the number of threads from it; the others have calls of their own.
  if (auto* set = find<void(int)>("omp_set_num_threads")) set(threads);
  if (auto* set = find<void(int)>("openblas_set_num_threads")) {
    set(threads);
    auto* config = find<char*()>("openblas_get_config");
    name = config != nullptr ? config() : "OpenBLAS";
  } else if (auto* mkl = find<void(int)>("MKL_Set_Num_Threads")) {
    mkl(threads);
    name = "MKL";
  } else if (auto* blis = find<void(std::int64_t)>("bli_thread_set_num_threads")) {
    blis(threads);
    name = "BLIS";
  }
  while (!name.empty() && name.back() == ' ') name.pop_back();
  return name + ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
}

}  // namespace annulus::ref
