// Groups of ranks over real MPI; the same cases hold for a group of one.
#include "comm/comm.h"
#include <boost/test/unit_test.hpp>
#include <numeric>
#include "ops/backend.h"
#include "support/world.h"

namespace annulus {
namespace {

using boost::unit_test::label;

struct World {
  std::unique_ptr<Backend> backend = make_cpu_backend(1);
  std::unique_ptr<Comm> comm = test::session().world(backend->queue());
  int r = comm->rank(), n = comm->size();
};

Tensor of(std::vector<float>& v) {
  return make_tensor("v", v.data(), DType::f32, {static_cast<std::int64_t>(v.size())});
}

void collectives_hold(World& w, Comm& comm) {
  const int r = comm.rank(), n = comm.size();
  for (const std::int64_t size : {0, 1, 7, 1003}) {
    std::vector<float> mine(static_cast<std::size_t>(size)), all(mine.size() * static_cast<std::size_t>(n));
    std::iota(mine.begin(), mine.end(), static_cast<float>(1000 * r));
    comm.all_gather(Lane::gather, of(mine), of(all));
    for (int p = 0; p < n; ++p)
      for (std::int64_t i = 0; i < size; ++i)
        BOOST_REQUIRE(all[static_cast<std::size_t>(p * size + i)] == static_cast<float>(1000 * p + i));

    // In place, and out of place: every rank adds r + i at all[i].
    for (const bool in_place : {true, false}) {
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(r) + static_cast<float>(i);
      const Tensor here = of(all).span(r * size, size);
      comm.reduce_scatter(Lane::reduce, of(all), in_place ? here : of(mine));
      const float* got = in_place ? all.data() + r * size : mine.data();
      for (std::int64_t i = 0; i < size; ++i)
        BOOST_REQUIRE(got[i] == static_cast<float>(n * (n - 1) / 2) + static_cast<float>(n * (r * size + i)));
    }

    std::iota(mine.begin(), mine.end(), static_cast<float>(r));
    comm.all_reduce(Lane::compute, of(mine), Reduce::max);
    for (std::int64_t i = 0; i < size; ++i)
      BOOST_REQUIRE(mine[static_cast<std::size_t>(i)] == float(n - 1 + i));
  }
  static_cast<void>(w);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(comm)

BOOST_AUTO_TEST_CASE(collectives_on_one_rank) {
  World w;
  collectives_hold(w, *w.comm);
  collectives_hold(w, *make_self_comm(w.backend->queue()));
}

BOOST_AUTO_TEST_CASE(collectives, *label("ranks2") * label("ranks3") * label("ranks4")) {
  World w;
  collectives_hold(w, *w.comm);
  collectives_hold(w, *w.comm->split(w.r % 2));
}

BOOST_AUTO_TEST_CASE(a_shift_by_the_size_is_the_identity,
                     *label("ranks2") * label("ranks3") * label("ranks4")) {
  World w;
  std::vector<float> held(501), next(501);
  std::iota(held.begin(), held.end(), static_cast<float>(w.r * 1000));
  const std::vector<float> original = held;
  for (int step = 0; step < w.n; ++step) {
    const Send send{(w.r + 1) % w.n, of(held)};
    const Receive receive{(w.r + w.n - 1) % w.n, of(next)};
    w.comm->exchange(Lane::ring, {&send, 1}, {&receive, 1});
    std::swap(held, next);
    BOOST_TEST(held[0] == static_cast<float>((w.r + w.n - 1 - step) % w.n * 1000));
  }
  BOOST_TEST(held == original);
}

BOOST_AUTO_TEST_CASE(exchange_matches_messages_between_two_ranks_in_order,
                     *label("ranks2") * label("ranks3")) {
  World w;
  std::vector<float> a(3, float(10 * w.r)), b(5, float(10 * w.r + 1)), none, x(3), y(5);
  const int to = (w.r + 1) % w.n, from = (w.r + w.n - 1) % w.n;
  const Send sends[] = {{to, of(a)}, {to, of(none)}, {to, of(b)}};
  const Receive receives[] = {{from, of(x)}, {from, of(y)}, {from, of(none)}};
  w.comm->exchange(Lane::ring, sends, receives);
  BOOST_TEST(x[2] == float(10 * from));
  BOOST_TEST(y[4] == float(10 * from + 1));
}

BOOST_AUTO_TEST_CASE(host_face, *label("ranks2") * label("ranks3") * label("ranks4")) {
  World w;
  BOOST_TEST(w.comm->sum(std::int64_t{1} << 40) == (std::int64_t{1} << 40) * w.n);
  BOOST_TEST(w.comm->max(std::int64_t{w.r}) == w.n - 1);
  const auto all = w.comm->all_gather(std::string(static_cast<std::size_t>(w.r * 3), 'a' + char(w.r)));
  for (int p = 0; p < w.n; ++p)
    BOOST_TEST(all[std::size_t(p)] == std::string(std::size_t(p * 3), 'a' + char(p)));
  std::string text = w.r == 1 ? "from one" : "";
  w.comm->broadcast(text, 1);
  BOOST_TEST(text == "from one");
}

BOOST_AUTO_TEST_CASE(a_failure_of_one_rank_is_everybodys,
                     *label("ranks2") * label("ranks3") * label("ranks4")) {
  World w;
  agreed(*w.comm, "nothing", [] {});
  try {
    agreed(*w.comm, "reading", [&] {
      if (w.r == 1) input_error("file x, line 3: not a number");
    });
    BOOST_FAIL("nobody threw");
  } catch (const Error& e) {
    BOOST_TEST(std::string(e.what()) == "file x, line 3: not a number");
    BOOST_TEST((e.code == Exit::input));
    BOOST_TEST(e.everywhere);
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace annulus
