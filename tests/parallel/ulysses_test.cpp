// The all-to-alls round the ring: every head of every token arrives where it belongs, and comes home.
#include "parallel/ulysses.h"
#include <boost/test/unit_test.hpp>
#include <cstring>
#include "core/bf16.h"
#include "support/lazy_backend.h"
#include "support/world.h"

using namespace annulus;
using namespace annulus::test;

namespace {

struct Problem {
  std::int64_t Tl, H, G, D;
};
// Heads that ranks 2 to 4 divide; fewer, as many, and more ranks than key/value heads, and neither divides
// the other.
constexpr Problem kProblems[] = {{1, 12, 1, 1}, {7, 12, 2, 3}, {5, 24, 3, 5}, {3, 12, 12, 2}, {11, 12, 4, 7}};

/// A value that names token (over all ranks), head and element; small enough for bf16 to hold exactly.
float value_of(std::int64_t token, std::int64_t head, std::int64_t d) {
  return static_cast<float>((token * 31 + head * 7 + d) % 251 - 125);
}

void put(const Tensor& t, std::int64_t i, float x) {
  if (t.dtype == DType::f32)
    t.as<float>()[i] = x;
  else
    t.as<bf16>()[i] = narrow(x);
}
float get(const Tensor& t, std::int64_t i) {
  return t.dtype == DType::f32 ? t.as<float>()[i] : widen(t.as<bf16>()[i]);
}

struct Site {
  Backend& backend;
  Arena& arena;
  ContextAttention& attention;
  int rank, size;
};

void settle(Queue& queue) {
  for (int l = 0; l < kLanes; ++l) queue.sync(queue.mark(static_cast<Lane>(l)));
}

/// One row of work: there with everything, back with a function of rank and place, so that no copy can stand
/// in for another. `there` and `back` look at what arrived, where there is memory.
struct Trip {
  Problem p;
  DType T;
  Tensor q, kv, heads, pair, home, home_pair;

  void issue(Site& s) {
    const int U = s.size;
    const HeadShare share = s.attention.share();
    s.arena.begin("trip");
    Tensor there = s.attention.to_heads(q), both = s.attention.pair_to_heads(kv);
    s.backend.queue().copy(Lane::compute, there, heads);
    s.backend.queue().copy(Lane::compute, both, pair);
    if (there.data != q.data) s.arena.give(there);
    if (both.data != kv.data) s.arena.give(both);
    there = s.arena.take(Region::workspace, "out", T, {U * p.Tl, share.H, p.D});
    s.backend.queue().copy(Lane::compute, heads, there);
    both = s.arena.take(Region::workspace, "dkv", T, {2, U * p.Tl, share.G, p.D});
    s.backend.queue().copy(Lane::compute, pair, both);
    const Tensor out = s.attention.to_tokens(there);
    s.backend.queue().copy(Lane::compute, out, home);
    s.arena.give(out);
    const Tensor dkv = s.attention.pair_to_tokens(both);
    s.backend.queue().copy(Lane::compute, dkv, home_pair);
    s.arena.give(dkv);
  }
};

Trip make_trip(Arena& arena, const Problem& p, DType T, int U) {
  const HeadShare share = share_heads(p.H, p.G, U);
  const auto keep = [&](const char* name, std::initializer_list<std::int64_t> dims) {
    return arena.keep(Region::workspace, name, T, dims);
  };
  return {.p = p,
          .T = T,
          .q = keep("q", {p.Tl, p.H, p.D}),
          .kv = keep("kv", {2, p.Tl, p.G, p.D}),
          .heads = keep("heads", {U * p.Tl, share.H, p.D}),
          .pair = keep("pair", {2, U * p.Tl, share.G, p.D}),
          .home = keep("home", {p.Tl, p.H, p.D}),
          .home_pair = keep("home pair", {2, p.Tl, p.G, p.D})};
}

void check_trip(Trip& t, Site s) {
  const Problem& p = t.p;
  const HeadShare share = s.attention.share();
  const std::int64_t U = s.size;
  for (std::int64_t n = 0; n < p.Tl; ++n)
    for (std::int64_t d = 0; d < p.D; ++d) {
      const std::int64_t token = s.rank * p.Tl + n;
      for (std::int64_t h = 0; h < p.H; ++h) put(t.q, (n * p.H + h) * p.D + d, value_of(token, h, d));
      for (std::int64_t g = 0; g < p.G; ++g)
        for (std::int64_t half = 0; half < 2; ++half)
          put(t.kv, ((half * p.Tl + n) * p.G + g) * p.D + d, value_of(token, g + 100 * half + 50, d));
    }
  for (const Tensor& x : {t.heads, t.pair, t.home, t.home_pair})
    std::memset(x.data, 0xFF, std::size_t(x.bytes()));
  t.issue(s);
  settle(s.backend.queue());
  std::int64_t wrong = 0;
  for (std::int64_t token = 0; token < U * p.Tl; ++token)
    for (std::int64_t d = 0; d < p.D; ++d) {
      for (std::int64_t h = 0; h < share.H; ++h)
        wrong += get(t.heads, (token * share.H + h) * p.D + d) != value_of(token, s.rank * share.H + h, d);
      for (std::int64_t g = 0; g < share.G; ++g)
        for (std::int64_t half = 0; half < 2; ++half) {
          const std::int64_t head = (s.rank * share.G + g) / share.repeats;
          wrong += get(t.pair, ((half * U * p.Tl + token) * share.G + g) * p.D + d) !=
                   value_of(token, head + 100 * half + 50, d);
        }
    }
  BOOST_TEST(wrong == 0, "on the way there");
  wrong = 0;
  for (std::int64_t i = 0; i < t.q.size(); ++i) wrong += get(t.home, i) != get(t.q, i);
  // Every copy comes home with the values of its head: their sum is that times their number, rounded once.
  for (std::int64_t i = 0; i < t.kv.size(); ++i) {
    const float sum = get(t.kv, i) * static_cast<float>(U == 1 ? 1 : share.repeats);
    wrong += get(t.home_pair, i) != (t.T == DType::f32 ? sum : widen(narrow(sum)));
  }
  BOOST_TEST(wrong == 0, "on the way home");
}

/// In order, and, by a plan from a dry pass, in the least convenient order that the marks allow.
void there_and_back() {
  const auto backend = make_cpu_backend(1);
  const auto world = session().world(backend->queue());
  const int U = world->size(), rank = world->rank();
  for (const Problem& p : kProblems)
    for (const DType T : {DType::f32, DType::bf16}) {
      BOOST_TEST_INFO_SCOPE("H " << p.H << " G " << p.G << " in " << name_of(T));
      const AttentionShape shape{.H = p.H, .G = p.G, .D = p.D};
      const auto dry = make_dry_backend(Place::host, nullptr);
      const auto pretended = make_loopback_comm(dry->queue(), rank, U);
      const auto alone = make_self_comm(dry->queue());
      Arena counting(dry->queue(), dry->memory());
      {
        ContextAttention attention(*dry, counting, *alone, *pretended, shape, T);
        Site site{*dry, counting, attention, rank, U};
        make_trip(counting, p, T, U).issue(site);
      }
      for (const std::uint64_t seed : {0, 3, 4}) {
        LazyBackend lazy(*backend, Lane::ring, seed);
        const auto heads = lazy.device_comm(session().world(backend->queue()));
        const auto ring = lazy.device_comm(make_self_comm(backend->queue()));
        Arena arena(lazy.queue(), lazy.memory(), counting.layout());
        ContextAttention attention(lazy, arena, *ring, *heads, shape, T);
        Trip trip = make_trip(arena, p, T, U);
        for (int again = 0; again < 2; ++again) check_trip(trip, {lazy, arena, attention, rank, U});
      }
    }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(parallel)

BOOST_AUTO_TEST_CASE(heads_of_a_rank) {
  const auto check = [](std::int64_t H, std::int64_t G, int ulysses, HeadShare want) {
    const HeadShare got = share_heads(H, G, ulysses);
    BOOST_TEST((got.H == want.H && got.G == want.G && got.repeats == want.repeats),
               H << "/" << G << " heads over " << ulysses);
    // A rank's query heads read its own copies, each of the head that the whole model would read.
    for (int u = 0; u < ulysses; ++u)
      for (std::int64_t h = 0; h < got.H; ++h)
        BOOST_TEST((u * got.G + h / (got.H / got.G)) / got.repeats == (u * got.H + h) / (H / G));
  };
  check(32, 8, 1, {32, 8, 1});
  check(32, 8, 4, {8, 2, 1});
  check(32, 8, 32, {1, 1, 4});
  check(12, 2, 3, {4, 2, 3});
  check(24, 6, 4, {6, 3, 2});
  check(7, 1, 7, {1, 1, 7});
  BOOST_CHECK_THROW(share_heads(6, 2, 4), Error);
}

BOOST_AUTO_TEST_CASE(heads_go_there_and_come_back_1) {
  there_and_back();
}
BOOST_AUTO_TEST_CASE(heads_go_there_and_come_back_2, *boost::unit_test::label("ranks2")) {
  there_and_back();
}
BOOST_AUTO_TEST_CASE(heads_go_there_and_come_back_3, *boost::unit_test::label("ranks3")) {
  there_and_back();
}
BOOST_AUTO_TEST_CASE(heads_go_there_and_come_back_4, *boost::unit_test::label("ranks4")) {
  there_and_back();
}

BOOST_AUTO_TEST_SUITE_END()
