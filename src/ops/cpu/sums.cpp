// Sums over a vector and over columns.
#include <vector>
#include "ops/cpu/loops.h"
#include "ops/cpu/reference.h"

namespace annulus::ref {

void sum(const Sum& a) {
  const std::int64_t n = a.x.shape[0];
  by_type(a.x.dtype, [&]<class T>(T) {
    const T* x = a.x.as<T>();
    double s = 0.0;
    if (a.squares) {
      s = dot(x, x, n);
    } else {
#pragma omp simd reduction(+ : s)
      for (std::int64_t i = 0; i < n; ++i) s += widen(x[i]);
    }
    *a.out.as<double>() += s;
  });
}

void column_sum(const ColumnSum& a) {
  const std::int64_t N = a.x.shape[0], C = a.x.shape[1];
  std::vector<double> sums(static_cast<std::size_t>(C), 0.0);
  double* s = sums.data();
  by_type(a.x.dtype, [&]<class T>(T) {
    for (std::int64_t n = 0; n < N; ++n) {
      const T* x = a.x.as<T>() + n * a.x.stride();
      for (std::int64_t c = 0; c < C; ++c) s[c] += widen(x[c]);
    }
  });
  float* out = a.out.as<float>();
  for (std::int64_t c = 0; c < C; ++c) out[c] = static_cast<float>(out[c] + s[c]);
}

}  // namespace annulus::ref
