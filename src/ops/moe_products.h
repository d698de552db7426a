// A grouped matmul as single ones.
#pragma once
#include "ops/ops.h"

namespace annulus {

/// Calls f(Matmul) for each expert that has rows.
template <class F>
void for_each_product(const GroupedMatmul& a, F f) {
  const auto matrix = [](const Tensor& t, std::size_t e) {
    return t.rows(static_cast<std::int64_t>(e), 1).view({t.shape[1], t.shape[2]});
  };
  for (std::size_t e = 0; e + 1 < a.offsets.size(); ++e) {
    const std::int64_t from = a.offsets[e], count = a.offsets[e + 1] - from;
    if (count == 0) continue;
    Matmul m;
    m.scale = a.scale;
    m.a = a.a.rows(from, count);
    if (a.gradient) {
      m.b = a.b.rows(from, count);
      m.c = m.add = matrix(a.c, e);
      m.trans_a = true;
    } else {
      m.b = matrix(a.b, e);
      m.c = a.c.rows(from, count);
      if (a.add) m.add = m.c;
      m.trans_b = a.trans_b;
    }
    f(m);
  }
}

}  // namespace annulus
