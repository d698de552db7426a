// RMSNorm in plain loops.
#include <cmath>
#include <vector>
#include "ops/cpu/loops.h"
#include "ops/cpu/reference.h"

namespace annulus::ref {

void rmsnorm_fwd(const RmsNormFwd& a) {
  const std::int64_t N = a.x.shape[0], C = a.x.shape[1];
  float* rstd = a.rstd.as<float>();
  by_type(a.x.dtype, [&]<class T>(T) {
    const T *x = a.x.as<T>(), *w = a.w.as<T>();
    T* y = a.y.as<T>();
    for (std::int64_t n = 0; n < N; ++n) {
      const T* row = x + n * C;
      T* out = y + n * C;
      const double r = 1.0 / std::sqrt(dot(row, row, C) / static_cast<double>(C) + a.eps);
      rstd[n] = static_cast<float>(r);
#pragma omp simd
      for (std::int64_t c = 0; c < C; ++c)
        out[c] = store<T>(static_cast<float>(widen(row[c]) * r * widen(w[c])));
    }
  });
}

// With xh = x * rstd: dx = dres + rstd * (dy * w - xh * mean(dy * w * xh)).
void rmsnorm_bwd(const RmsNormBwd& a) {
  const std::int64_t N = a.x.shape[0], C = a.x.shape[1];
  const float* rstd = a.rstd.as<float>();
  std::vector<double> sum(static_cast<std::size_t>(C), 0.0);
  double* dw = sum.data();
  by_type(a.x.dtype, [&]<class T>(T) {
    const T *w = a.w.as<T>(), *dres = a.dres ? a.dres.as<T>() : nullptr;
    for (std::int64_t n = 0; n < N; ++n) {
      const T *x = a.x.as<T>() + n * C, *dy = a.dy.as<T>() + n * C;
      T* dx = a.dx.as<T>() + n * C;
      const double r = rstd[n];
      double mean = 0.0;
#pragma omp simd reduction(+ : mean)
      for (std::int64_t c = 0; c < C; ++c) {
        const double gradient = double(widen(dy[c])) * widen(x[c]) * r;
        dw[c] += gradient;
        mean += gradient * widen(w[c]);
      }
      mean /= static_cast<double>(C);
#pragma omp simd
      for (std::int64_t c = 0; c < C; ++c) {
        const double round_the_norm = dres != nullptr ? widen(dres[n * C + c]) : 0.0;
        const double through = r * (double(widen(dy[c])) * widen(w[c]) - widen(x[c]) * r * mean);
        dx[c] = store<T>(static_cast<float>(round_the_norm + through));
      }
    }
  });
  if (!a.dw) return;
  float* out = a.dw.as<float>();
  for (std::int64_t c = 0; c < C; ++c) out[c] = static_cast<float>(out[c] + dw[c]);
}

}  // namespace annulus::ref
