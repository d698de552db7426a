// Add and cast.
#include "ops/cpu/loops.h"
#include "ops/cpu/reference.h"

namespace annulus::ref {

void add(const Add& a) {
  const std::int64_t n = a.x.shape[0];
  by_type(a.x.dtype, [&]<class X>(X) {
    by_type(a.y.dtype, [&]<class Y>(Y) {
      const X* x = a.x.as<X>();
      Y* y = a.y.as<Y>();
      for (std::int64_t i = 0; i < n; ++i) y[i] = store<Y>(widen(y[i]) + widen(x[i]));
    });
  });
}

void cast(const Cast& a) {
  const std::int64_t n = a.from.shape[0];
  by_type(a.from.dtype, [&]<class From>(From) {
    by_type(a.to.dtype, [&]<class To>(To) {
      const From* from = a.from.as<From>();
      To* to = a.to.as<To>();
      for (std::int64_t i = 0; i < n; ++i) to[i] = store<To>(widen(from[i]));
    });
  });
}

}  // namespace annulus::ref
