#include "parallel/ring_attention.h"
#include <boost/test/unit_test.hpp>
#include "parallel/ring_case.h"
#include "support/lazy_backend.h"
#include "support/world.h"

using namespace annulus;
using namespace annulus::test;

namespace {

struct Ring {
  std::unique_ptr<Backend> backend = make_cpu_backend(1);
  std::unique_ptr<Comm> world = session().world(backend->queue());
};

/// Runs a case on a ring of all ranks of `ring` with memory of its own.
template <class T = float>
RingErrors errors_in(Backend& backend, Comm& ring, const RingCase& c) {
  const std::int64_t windows[] = {c.window};
  const RowMap map(c.row, ring.size(), 1, c.per_member, windows);
  RingData data = make_inputs<T>(c, map.length());
  solve(c, map.length(), data);
  Arena arena(backend.queue(), backend.memory());
  RingRun run(backend, arena, ring, c, map.member_tokens(), dtype_of<T>);
  return errors_of(c, run.run(c, map, data), data);
}

RowShape whole(std::int64_t S) {
  return {.sequence = S, .used = S, .starts = {0}};
}

/// Cases that every size of ring runs: lengths that the chunks do not divide, documents of one token and of
/// many chunks, padding longer than a chunk, an empty row, windows shorter and longer than a chunk, tiles and
/// more than a tile of queries.
std::vector<RingCase> cases() {
  const RowShape packed{.sequence = 157, .used = 157, .starts = {0, 1, 40, 41, 42, 100, 150}};
  const RowShape padded{.sequence = 101, .used = 47, .starts = {0, 20}};
  return {
      {.row = whole(1), .H = 2, .G = 1, .D = 3, .groups = 1, .window = 0, .per_member = 1},
      {.row = whole(61), .H = 6, .G = 3, .D = 5, .groups = 1, .window = 0, .per_member = 1},
      {.row = whole(61), .H = 6, .G = 3, .D = 5, .groups = 3, .window = 0, .per_member = 1},
      {.row = whole(331), .H = 4, .G = 4, .D = 7, .groups = 2, .window = 0, .per_member = 1, .passage = 1000},
      {.row = whole(67), .H = 3, .G = 3, .D = 5, .groups = 1, .window = 9, .per_member = 1},
      {.row = whole(67), .H = 6, .G = 3, .D = 5, .groups = 3, .window = 50, .per_member = 4},
      {.row = packed, .H = 6, .G = 2, .D = 5, .groups = 1, .window = 0, .per_member = 4},
      {.row = packed, .H = 6, .G = 2, .D = 5, .groups = 2, .window = 13, .per_member = 4},
      {.row = packed, .H = 5, .G = 1, .D = 9, .groups = 1, .window = 0, .per_member = 1},
      {.row = padded, .H = 2, .G = 2, .D = 5, .groups = 1, .window = 0, .per_member = 4},
      {.row = padded, .H = 2, .G = 2, .D = 5, .groups = 2, .window = 6, .per_member = 1},
      {.row = {.sequence = 29, .used = 0, .starts = {}},
       .H = 2,
       .G = 1,
       .D = 5,
       .groups = 1,
       .window = 0,
       .per_member = 4},
  };
}

RingCase random_case(Dice& dice) {
  RingCase c{.row = random_row(dice, 160, 9),
             .H = 0,
             .G = dice.in(1, 3),
             .D = dice.in(1, 9),
             .groups = 1,
             .window = dice.in(0, 1) * dice.in(1, 60),
             .per_member = dice.in(0, 1) == 0 ? 1 : 4,
             .seed = static_cast<std::uint64_t>(dice.in(1, 1000))};
  c.H = c.G * dice.in(1, 3);
  if (dice.in(0, 1) == 1) c.groups = c.G;
  if (dice.in(0, 1) == 1) c.passage = dice.in(20, 200);
  return c;
}

void ring_equals_dense() {
  Ring r;
  // Largest seen over such cases and rings of 1 to 4: o 2e-7, lse 2e-7, dq 1e-6, dk 1.1e-6, dv 3.3e-7.
  constexpr double kTolerance = 3e-6;
  std::vector<RingCase> all = cases();
  Dice dice(11);
  for (int i = 0; i < 12; ++i) all.push_back(random_case(dice));
  RingErrors worst;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const RingErrors e = errors_in(*r.backend, *r.world, all[i]);
    BOOST_TEST(e.o < kTolerance, "case " << i << ": o " << e.o);
    BOOST_TEST(e.lse < kTolerance, "case " << i << ": lse " << e.lse);
    BOOST_TEST(e.dq < kTolerance, "case " << i << ": dq " << e.dq);
    BOOST_TEST(e.dk < kTolerance, "case " << i << ": dk " << e.dk);
    BOOST_TEST(e.dv < kTolerance, "case " << i << ": dv " << e.dv);
    worst = {std::max(worst.o, e.o), std::max(worst.lse, e.lse), std::max(worst.dq, e.dq),
             std::max(worst.dk, e.dk), std::max(worst.dv, e.dv)};
  }
  BOOST_TEST_MESSAGE("ring of " << r.world->size() << ": o " << worst.o << " lse " << worst.lse << " dq "
                                << worst.dq << " dk " << worst.dk << " dv " << worst.dv);
}

/// Scores of +-200: e^200 has no float, and a sum of e^-200 is nothing beside it.
void ring_takes_extreme_scores() {
  Ring r;
  // A score of 200 in f32 is good to 1e-5, and so is every weight.
  constexpr double kTolerance = 1e-4;
  for (std::int64_t groups : {1, 2}) {
    const RingCase c{.row = {.sequence = 118, .used = 110, .starts = {0, 31, 64}},
                     .H = 4,
                     .G = 2,
                     .D = 6,
                     .groups = groups,
                     .window = 0,
                     .per_member = 1,
                     .offset = 200};
    const RingErrors e = errors_in(*r.backend, *r.world, c);
    BOOST_TEST(e.o < kTolerance);
    BOOST_TEST(e.lse < 2e-6);
    BOOST_TEST(e.dq < kTolerance);
    BOOST_TEST(e.dk < kTolerance);
    BOOST_TEST(e.dv < kTolerance);
  }
}

/// bf16 travels as bf16 and is summed in f32: the ring may err no more than twice as much as one member.
void ring_in_bf16() {
  Ring r;
  const auto alone = make_self_comm(r.backend->queue());
  for (std::int64_t groups : {1, 3}) {
    const RingCase c{.row = {.sequence = 157, .used = 157, .starts = {0, 60}},
                     .H = 6,
                     .G = 3,
                     .D = 5,
                     .groups = groups,
                     .window = 0,
                     .per_member = 1};
    const RingErrors one = errors_in<bf16>(*r.backend, *alone, c),
                     e = errors_in<bf16>(*r.backend, *r.world, c);
    BOOST_TEST(one.o < 0.01);
    BOOST_TEST(one.dk < 0.01);
    BOOST_TEST(e.o <= 2 * one.o);
    BOOST_TEST(e.dq <= 2 * one.dq);
    BOOST_TEST(e.dk <= 2 * one.dk);
    BOOST_TEST(e.dv <= 2 * one.dv);
  }
}

/// Another token in document A moves nothing of document B, to the bit; and it does move A's last token.
void ring_keeps_documents_apart() {
  Ring r;
  const int per_member = r.world->size() == 3 ? 4 : 1;
  const RingCase c{.row = {.sequence = 143, .used = 140, .starts = {0, 37, 90}},
                   .H = 4,
                   .G = 2,
                   .D = 5,
                   .groups = 1,
                   .window = 0,
                   .per_member = per_member};
  const std::int64_t windows[] = {0};
  const RowMap map(c.row, r.world->size(), 1, c.per_member, windows);
  RingData data = make_inputs<float>(c, map.length());
  Arena arena(r.backend->queue(), r.backend->memory());
  RingRun run(*r.backend, arena, *r.world, c, map.member_tokens(), DType::f32);
  const MemberResult before = run.run(c, map, data), again = run.run(c, map, data);
  BOOST_TEST((before.o == again.o && before.lse == again.lse && before.dq == again.dq &&
              before.dk == again.dk && before.dv == again.dv));
  const std::int64_t token = 40, begin = 37, end = 90;  // the second document's
  for (std::int64_t x = 0; x < c.G * c.D; ++x) {
    data.k[at(token * c.G * c.D + x)] += 3;
    data.v[at(token * c.G * c.D + x)] -= 2;
  }
  const MemberResult after = run.run(c, map, data);
  std::int64_t moved = 0;
  bool last_moved = false;
  for (std::size_t i = 0; i < before.positions.size(); ++i) {
    const std::int64_t p = before.positions[i];
    const auto same = [&](const std::vector<float>& a, const std::vector<float>& b, std::int64_t width) {
      return std::memcmp(&a[i * at(width)], &b[i * at(width)], at(width) * sizeof(float)) == 0;
    };
    const bool o = same(before.o, after.o, c.H * c.D), lse = same(before.lse, after.lse, c.H);
    const bool gradients = same(before.dq, after.dq, c.H * c.D) && same(before.dk, after.dk, c.G * c.D) &&
                           same(before.dv, after.dv, c.G * c.D);
    if (p < begin || p >= end) BOOST_TEST((o && lse && gradients), "position " << p << " moved");
    if (p >= begin && p < token) BOOST_TEST((o && lse), "position " << p << " saw the future");
    moved += !o;
    if (p == end - 1) last_moved = !o && !lse && !gradients;
  }
  BOOST_TEST(r.world->sum(moved) == end - token);
  BOOST_TEST(r.world->sum(std::int64_t{last_moved}) == 1);
}

/// A plan from one row without any computing serves every other row; nothing is read before its mark, nor
/// overwritten before it is read, in whatever order lanes run.
void ring_follows_plan_and_marks() {
  Ring r;
  const int ring = r.world->size();
  struct Problem {
    RingCase c;
    RowMap map;
    RingData data;
  };
  struct Order {
    Lane favourite;
    std::uint64_t seed;
  };
  for (std::int64_t groups : {1, 3}) {
    // 191 tokens are 192 with padding for rings of 2 to 4 and both maps.
    RingCase c{.row = whole(191),
               .H = 6,
               .G = 3,
               .D = 5,
               .groups = groups,
               .window = 0,
               .per_member = 4,
               .passage = 333};
    struct Shape {
      RowShape row;
      int per_member;
    };
    const Shape shapes[] = {{whole(191), 1},
                            {whole(191), 4},
                            {{191, 191, {0, 1, 40, 41, 42, 100, 150}}, 4},
                            {{191, 90, {0, 80}}, 4},
                            {{191, 0, {}}, 4},
                            // A member of four has no keys at step 2, between those of steps 1 and 3.
                            {{191, 191, {0, 12, 41, 71, 82, 111, 143, 166}}, 4},
                            // The first member of four sends its keys and needs nobody's.
                            {{191, 191, {0, 48, 72, 96, 120, 144, 168}}, 1}};
    std::vector<Problem> problems;
    for (const Shape& shape : shapes)
      for (std::int64_t window : {0, 30}) {
        c.row = shape.row;
        c.per_member = shape.per_member;
        c.window = window;
        const RowMap map(c.row, ring, 1, c.per_member, std::span(&window, 1));
        RingData data = make_inputs<float>(c, map.length());
        solve(c, map.length(), data);
        problems.push_back({c, map, std::move(data)});
      }
    const std::int64_t Tm = problems[0].map.member_tokens();

    const auto dry = make_dry_backend(Place::host, &r.backend->ops());
    const auto pretended = make_loopback_comm(dry->queue(), r.world->rank(), ring);
    Arena counting(dry->queue(), dry->memory());
    RingRun(*dry, counting, *pretended, c, Tm, DType::f32).issue(problems[0].map, 0);
    const Layout layout = counting.layout();
    BOOST_TEST(layout.pool_bytes > 0);

    for (const Order order :
         {Order{Lane::compute, 0}, Order{Lane::ring, 0}, Order{Lane::in, 5}, Order{Lane::in, 6}}) {
      LazyBackend lazy(*r.backend, order.favourite, order.seed);
      const auto comm = lazy.device_comm(session().world(r.backend->queue()));
      Arena arena(lazy.queue(), lazy.memory(), layout);
      RingRun run(lazy, arena, *comm, c, Tm, DType::f32);
      for (const Problem& p : problems) {
        const RingErrors e = errors_of(p.c, run.run(p.c, p.map, p.data), p.data);
        BOOST_TEST((e.o < 2e-6 && e.lse < 2e-6 && e.dq < 2e-6 && e.dk < 2e-6 && e.dv < 2e-6),
                   "o " << e.o << " lse " << e.lse << " dq " << e.dq << " dk " << e.dk << " dv " << e.dv);
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(parallel)

// Each on rings of one to four members.
#define RING_TEST(work)                                                \
  BOOST_AUTO_TEST_CASE(work##_1) {                                     \
    work();                                                            \
  }                                                                    \
  BOOST_AUTO_TEST_CASE(work##_2, *boost::unit_test::label("ranks2")) { \
    work();                                                            \
  }                                                                    \
  BOOST_AUTO_TEST_CASE(work##_3, *boost::unit_test::label("ranks3")) { \
    work();                                                            \
  }                                                                    \
  BOOST_AUTO_TEST_CASE(work##_4, *boost::unit_test::label("ranks4")) { \
    work();                                                            \
  }

RING_TEST(ring_equals_dense)
RING_TEST(ring_takes_extreme_scores)
RING_TEST(ring_in_bf16)
RING_TEST(ring_keeps_documents_apart)
RING_TEST(ring_follows_plan_and_marks)

BOOST_AUTO_TEST_CASE(ring_attention_refuses_heads_that_do_not_divide) {
  Ring r;
  Arena arena(r.backend->queue(), r.backend->memory());
  const auto make = [&](AttentionShape s) { RingAttention(*r.backend, arena, *r.world, s, DType::f32); };
  BOOST_CHECK_THROW(make({.H = 5, .G = 2, .D = 4}), Error);
  BOOST_CHECK_THROW(make({.H = 6, .G = 3, .D = 4, .groups = 2}), Error);
  BOOST_CHECK_THROW(make({.H = 6, .G = 3, .D = 4, .passage = 0}), Error);
}

BOOST_AUTO_TEST_SUITE_END()
