// One matrix product an expert.
#include "ops/cpu/reference.h"

namespace annulus::ref {

void grouped_matmul(const GroupedMatmul& a) {
  const auto matrix = [](const Tensor& t, std::int64_t e) {
    return t.rows(e, 1).view({t.shape[1], t.shape[2]});
  };
  for (std::size_t e = 0; e + 1 < a.offsets.size(); ++e) {
    const std::int64_t from = a.offsets[e], count = a.offsets[e + 1] - from;
    if (count == 0) continue;
    Matmul m;
    m.a = a.a.rows(from, count);
    if (a.gradient) {
      m.b = a.b.rows(from, count);
      m.c = m.add = matrix(a.c, static_cast<std::int64_t>(e));
      m.trans_a = true;
    } else {
      m.b = matrix(a.b, static_cast<std::int64_t>(e));
      m.c = a.c.rows(from, count);
      m.trans_b = a.trans_b;
    }
    matmul(m);
  }
}

}  // namespace annulus::ref
