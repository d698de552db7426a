// The device face of groups. Several ranks share one GPU here; NCCL then works through sockets.
#include <numeric>
#include "support/backends.h"
#include "support/device.h"
#include "support/world.h"

using namespace annulus;
using namespace annulus::test;

namespace {

constexpr std::int64_t kCount = 10'007;

/// Element i of rank r: small integers, so that sums are exact.
float element(int r, std::int64_t i) {
  return static_cast<float>((i * 7 + r * 13) % 1001 - 500);
}

Floats elements(int r, std::int64_t count = kCount) {
  Floats v(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) v[static_cast<std::size_t>(i)] = element(r, i);
  return v;
}

void all_collectives(Comm& comm) {
  const int r = comm.rank(), R = comm.size();
  Device device(*test::cuda());
  Queue& queue = test::cuda()->queue();

  Floats sum(kCount, 0.f), largest = elements(0);
  for (int s = 0; s < R; ++s)
    for (std::int64_t i = 0; i < kCount; ++i) {
      sum[static_cast<std::size_t>(i)] += element(s, i);
      largest[static_cast<std::size_t>(i)] = std::max(largest[static_cast<std::size_t>(i)], element(s, i));
    }
  const Tensor x = device.in("x", DType::f32, {kCount}, elements(r)),
               m = device.in("m", DType::f32, {kCount}, elements(r));
  comm.all_reduce(Lane::reduce, x);
  comm.all_reduce(Lane::reduce, m, Reduce::max);
  queue.sync(queue.mark(Lane::reduce));
  BOOST_TEST(device.floats(x) == sum, boost::test_tools::per_element());
  BOOST_TEST(device.floats(m) == largest, boost::test_tools::per_element());

  const Tensor d = device.in("d", {2}, Doubles{1e300 / R, r + 0.5});
  comm.all_reduce(Lane::compute, d);
  queue.sync(queue.mark(Lane::compute));
  BOOST_TEST(device.doubles(d)[1] == R * (R - 1) / 2 + 0.5 * R);

  const Tensor all = device.out("all", DType::bf16, {R * kCount}),
               mine = device.in("mine", DType::bf16, {kCount}, Floats(kCount, static_cast<float>(r + 1)));
  comm.all_gather(Lane::gather, mine, all);
  queue.sync(queue.mark(Lane::gather));
  for (int s = 0; s < R; ++s)
    BOOST_TEST(device.floats(all.span(s * kCount, kCount)) == Floats(kCount, static_cast<float>(s + 1)),
               boost::test_tools::per_element());

  Floats whole;
  for (int s = 0; s < R; ++s)
    for (float v : elements(r + s)) whole.push_back(v);
  const Tensor wide = device.in("wide", DType::f32, {R * kCount}, whole);
  comm.reduce_scatter(Lane::reduce, wide, wide.span(r * kCount, kCount));
  queue.sync(queue.mark(Lane::reduce));
  Floats part(kCount, 0.f);
  for (int s = 0; s < R; ++s)
    for (std::int64_t i = 0; i < kCount; ++i) part[static_cast<std::size_t>(i)] += element(s + r, i);
  BOOST_TEST(device.floats(wide.span(r * kCount, kCount)) == part, boost::test_tools::per_element());

  // A ring shift, something to oneself, and nothing at all, in one exchange.
  const int next = (r + 1) % R, before = (r + R - 1) % R;
  const Tensor out = device.in("out", DType::f32, {kCount}, elements(r)),
               in = device.out("in", DType::f32, {kCount}),
               own = device.in("own", DType::f32, {3}, Floats{1, 2, 3}),
               copy = device.out("copy", DType::f32, {3});
  const Send sends[] = {{next, out}, {r, own}, {before, out.span(0, 0)}};
  const Receive receives[] = {{before, in}, {r, copy}, {next, in.span(0, 0)}};
  comm.exchange(Lane::ring, sends, receives);
  queue.sync(queue.mark(Lane::ring));
  BOOST_TEST(device.floats(in) == elements(before), boost::test_tools::per_element());
  BOOST_TEST(device.floats(copy) == (Floats{1, 2, 3}), boost::test_tools::per_element());
  BOOST_TEST(device.intact());
}

void groups() {
  const auto world = test::cuda()->device_comm(session().world(test::cuda()->queue()));
  BOOST_TEST(std::string(world->kind()) == (world->size() == 1 ? "self" : "nccl"));
  all_collectives(*world);
  const auto half = world->split(world->rank() % 2);
  all_collectives(*half);
  BOOST_TEST(world->sum(std::int64_t{world->rank()}) == world->size() * (world->size() - 1) / 2);
  world->barrier();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda)

BOOST_AUTO_TEST_CASE(a_group_of_one, *boost::unit_test::precondition(needs_gpu)) {
  groups();
}
BOOST_AUTO_TEST_CASE(a_group_of_two,
                     *boost::unit_test::label("ranks2") * boost::unit_test::precondition(needs_gpu)) {
  groups();
}
BOOST_AUTO_TEST_CASE(a_group_of_three,
                     *boost::unit_test::label("ranks3") * boost::unit_test::precondition(needs_gpu)) {
  groups();
}
BOOST_AUTO_TEST_CASE(a_group_of_four,
                     *boost::unit_test::label("ranks4") * boost::unit_test::precondition(needs_gpu)) {
  groups();
}

BOOST_AUTO_TEST_SUITE_END()
