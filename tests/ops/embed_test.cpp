#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <numeric>
#include "core/rng.h"
#include "ops/embed_cases.h"
#include "support/judge.h"

namespace annulus::test {
namespace {

std::vector<std::int32_t> random_ids(std::int64_t N, std::int64_t V) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(N));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(draw(3, Draw::test, 0, i)[0] % static_cast<std::uint64_t>(V));
  return ids;
}

std::vector<std::int32_t> sorted_order(const std::vector<std::int32_t>& ids) {
  std::vector<std::int32_t> order(ids.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return ids[static_cast<std::size_t>(a)] < ids[static_cast<std::size_t>(b)];
  });
  return order;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(ops)

BOOST_AUTO_TEST_CASE(embed_fwd_copies_rows) {
  for (const DType T : kTypes)
    for (const EmbedCase& c : kEmbedCases) {
      const auto ids = random_ids(c.N, c.V);
      const Floats table = random_values(T, 1, {c.V, c.C});
      Doubles y;
      for (const std::int32_t id : ids)
        y.insert(y.end(), table.begin() + id * c.C, table.begin() + (id + 1) * c.C);
      hold(c.why,
           [&](Device& d) {
             const Tensor out = d.out("y", T, {c.N, c.C});
             d.ops().embed_fwd(
                 Lane::compute,
                 {.ids = d.in("ids", {c.N}, ids), .table = d.in("table", T, {c.V, c.C}, table), .y = out});
             return std::vector{out};
           },
           {{"y", y, Doubles(y.size(), 0.0)}});
    }
}

BOOST_AUTO_TEST_CASE(embed_bwd_sums_repeated_ids) {
  for (const DType T : kTypes)
    for (const EmbedCase& c : kEmbedCases) {
      const auto ids = random_ids(c.N, c.V);
      const Floats dy = random_values(T, 2, {c.N, c.C}), before = random_values(DType::f32, 3, {c.V, c.C});
      Doubles sum = to_doubles(before);
      for (std::int64_t n = 0; n < c.N; ++n)
        for (std::int64_t k = 0; k < c.C; ++k)
          sum[static_cast<std::size_t>(ids[static_cast<std::size_t>(n)] * c.C + k)] +=
              dy[static_cast<std::size_t>(n * c.C + k)];
      hold(c.why,
           [&](Device& d) {
             const Tensor dtable = d.in("dtable", DType::f32, {c.V, c.C}, before);
             d.ops().embed_bwd(Lane::compute, {.ids = d.in("ids", {c.N}, ids),
                                               .order = d.in("order", {c.N}, sorted_order(ids)),
                                               .dy = d.in("dy", T, {c.N, c.C}, dy),
                                               .dtable = dtable});
             return std::vector{dtable};
           },
           {rounded_once("dtable", DType::f32, sum, 1e-12)});
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace annulus::test
