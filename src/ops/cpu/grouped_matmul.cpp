// One matrix product an expert.
#include "ops/cpu/reference.h"
#include "ops/moe_products.h"

namespace annulus::ref {

void grouped_matmul(const GroupedMatmul& a) {
  for_each_product(a, [](const Matmul& m) { matmul(m); });
}

}  // namespace annulus::ref
