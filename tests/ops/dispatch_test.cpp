// Index building, and the way of a row there and back.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <map>
#include <set>
#include "core/rng.h"
#include "ops/dispatch_cases.h"
#include "support/backends.h"
#include "support/judge.h"

namespace annulus::test {
namespace {

using Ints = std::vector<std::int32_t>;

/// Different experts for each token; every fifth token is padding.
Ints ids_of(const DispatchCase& c) {
  Ints ids;
  for (std::int64_t n = 0; n < c.N; ++n) {
    const std::int64_t among = c.choice == Choice::not_last_rank ? c.E - c.E / c.R : c.E;
    Ints mine;
    for (std::uint64_t i = 0; std::ssize(mine) < c.K; ++i) {
      const auto id = static_cast<std::int32_t>(draw(7, Draw::test, static_cast<std::uint64_t>(n), i)[0] %
                                                static_cast<std::uint64_t>(among));
      if (std::find(mine.begin(), mine.end(), id) == mine.end()) mine.push_back(id);
    }
    for (std::int64_t k = 0; k < c.K; ++k) {
      const bool padding = c.choice == Choice::padding || n % 5 == 3;
      ids.push_back(padding                    ? -1
                    : c.choice == Choice::same ? static_cast<std::int32_t>(k)
                                               : mine[static_cast<std::size_t>(k)]);
    }
  }
  return ids;
}

/// What a rank sends, from a map that sorts by (rank, token).
struct Sent {
  Doubles token, slots, shares, place;
  std::vector<std::int64_t> rows;  // of each rank
};

Sent sent_rows(const DispatchCase& c, const Ints& ids, const Floats& weights) {
  const std::int64_t X = c.E / c.R;
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::int64_t>> rows;  // -> its pairs
  for (std::int64_t i = 0; i < c.N * c.K; ++i)
    if (const std::int32_t id = ids[static_cast<std::size_t>(i)]; id >= 0)
      rows[{id / X, i / c.K}].push_back(i);
  Sent sent;
  sent.rows.resize(static_cast<std::size_t>(c.R));
  sent.place.assign(static_cast<std::size_t>(c.N * c.R), -1.0);
  for (const auto& [key, pairs] : rows) {
    const auto& [rank, token] = key;
    sent.place[static_cast<std::size_t>(token * c.R + rank)] = static_cast<double>(sent.token.size());
    sent.token.push_back(static_cast<double>(token));
    ++sent.rows[static_cast<std::size_t>(rank)];
    const std::size_t at = sent.slots.size();
    sent.slots.resize(at + static_cast<std::size_t>(c.K), -1.0);
    sent.shares.resize(at + static_cast<std::size_t>(c.K), 0.0);
    for (const std::int64_t i : pairs) {
      const auto k = static_cast<std::size_t>(i % c.K), pair = static_cast<std::size_t>(i);
      sent.slots[at + k] = static_cast<double>(ids[pair] % X);
      sent.shares[at + k] = weights[pair];
    }
  }
  return sent;
}

Expected exactly(const char* name, const Doubles& values) {
  return {name, values, Doubles(values.size(), 0.0)};
}

/// An i32 output whose first contents are no index at all.
Tensor index_out(Device& d, const char* name, std::int64_t rows, std::int64_t columns) {
  return d.in(name, {rows, columns}, Ints(static_cast<std::size_t>(rows * columns), 1 << 20));
}

Ints to_ints(const Doubles& x) {
  return {x.begin(), x.end()};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(ops)

BOOST_AUTO_TEST_CASE(route_count_of_sub_ranges) {
  for (const DispatchCase& c : kDispatchCases) {
    const Ints ids = ids_of(c);
    const std::int64_t ranges = (c.N + c.range - 1) / c.range;
    Doubles experts(static_cast<std::size_t>(ranges * c.E), 0.0),
        rows(static_cast<std::size_t>(ranges * c.R), 0.0);
    for (std::int64_t n = 0; n < c.N; ++n) {
      std::set<std::int64_t> ranks;
      for (std::int64_t k = 0; k < c.K; ++k)
        if (const std::int32_t id = ids[static_cast<std::size_t>(n * c.K + k)]; id >= 0) {
          experts[static_cast<std::size_t>(n / c.range * c.E + id)] += 1;
          ranks.insert(id * c.R / c.E);
        }
      for (const std::int64_t r : ranks) rows[static_cast<std::size_t>(n / c.range * c.R + r)] += 1;
    }
    hold(c.why,
         [&](Device& d) {
           RouteCount a;
           a.ids = d.in("ids", {c.N, c.K}, ids);
           a.experts = d.out("experts", DType::i64, {ranges, c.E});
           a.rows = d.out("rows", DType::i64, {ranges, c.R});
           a.range = c.range;
           d.ops().route_count(Lane::compute, a);
           return std::vector{a.experts, a.rows};
         },
         {exactly("experts", experts), exactly("rows", rows)});
  }
}

BOOST_AUTO_TEST_CASE(dispatch_index_sends_a_row_once_to_each_rank) {
  for (const DispatchCase& c : kDispatchCases) {
    const Ints ids = ids_of(c);
    const Floats weights = random_values(DType::f32, 1, {c.N, c.K});
    const Sent sent = sent_rows(c, ids, weights);
    const std::int64_t S = std::ssize(sent.token);
    hold(c.why,
         [&](Device& d) {
           DispatchIndex a;
           a.ids = d.in("ids", {c.N, c.K}, ids);
           a.weights = d.in("weights", DType::f32, {c.N, c.K}, weights);
           a.token = index_out(d, "token", S, 1).view({S});
           a.slots = index_out(d, "slots", S, c.K);
           a.shares = d.out("shares", DType::f32, {S, c.K});
           a.place = index_out(d, "place", c.N, c.R);
           a.experts = c.E / c.R;
           d.ops().dispatch_index(Lane::compute, a);
           return std::vector{a.token, a.slots, a.shares, a.place};
         },
         {exactly("token", sent.token), exactly("slots", sent.slots), exactly("shares", sent.shares),
          exactly("place", sent.place)});
  }
}

// Each rank sorts what it got; a rank may have got nothing.
BOOST_AUTO_TEST_CASE(expert_index_is_a_stable_sort) {
  for (const DispatchCase& c : kDispatchCases) {
    const Sent sent = sent_rows(c, ids_of(c), random_values(DType::f32, 1, {c.N, c.K}));
    std::int64_t first = 0;
    for (const std::int64_t M : sent.rows) {
      const auto from = static_cast<std::ptrdiff_t>(first * c.K), to = from + M * c.K;
      const Doubles slots(sent.slots.begin() + from, sent.slots.begin() + to),
          shares(sent.shares.begin() + from, sent.shares.begin() + to);
      first += M;
      Doubles row, share, place(slots.size(), -1.0);
      for (std::int64_t e = 0; e < c.E / c.R; ++e)
        for (std::size_t i = 0; i < slots.size(); ++i) {
          if (slots[i] != static_cast<double>(e)) continue;
          place[i] = static_cast<double>(row.size());
          row.push_back(static_cast<double>(static_cast<std::int64_t>(i) / c.K));
          share.push_back(shares[i]);
        }
      const std::int64_t P = std::ssize(row);
      hold(c.why,
           [&](Device& d) {
             ExpertIndex a;
             a.slots = d.in("slots", {M, c.K}, to_ints(slots));
             a.shares = d.in("shares", DType::f32, {M, c.K}, to_floats(shares));
             a.row = index_out(d, "row", P, 1).view({P});
             a.share = d.out("share", DType::f32, {P});
             a.place = index_out(d, "place", M, c.K);
             a.experts = c.E / c.R;
             d.ops().expert_index(Lane::compute, a);
             return std::vector{a.row, a.share, a.place};
           },
           {exactly("row", row), exactly("share", share), exactly("place", place)});
    }
  }
}

// Rows go to ranks, are expanded, multiplied by a number of their expert's, summed on the rank and summed at
// home: each token gets x times the weighted sum of its experts' numbers.
BOOST_AUTO_TEST_CASE(rows_that_were_dispatched_come_home) {
  constexpr std::int64_t C = 5;
  for (const DispatchCase& c : kDispatchCases) {
    if (c.N == 0) continue;
    const Ints ids = ids_of(c);
    const std::int64_t X = c.E / c.R;
    const Floats weights = random_values(DType::f32, 1, {c.N, c.K}),
                 x = random_values(DType::f32, 2, {c.N, C});
    const Sent sent = sent_rows(c, ids, weights);
    Doubles want(x.size(), 0.0), magnitude(x.size(), 0.0);
    for (std::size_t i = 0; i < ids.size(); ++i)
      for (std::size_t j = 0; j < C && ids[i] >= 0; ++j) {
        const std::size_t at = i / static_cast<std::size_t>(c.K) * C + j;
        const double part = double(weights[i]) * (1 + ids[i]) * x[at];
        want[at] += part;
        magnitude[at] += std::abs(part);
      }
    hold(c.why,
         [&](Device& d) {
           const std::int64_t S = std::ssize(sent.token);
           DispatchIndex index;
           index.ids = d.in("ids", {c.N, c.K}, ids);
           index.weights = d.in("weights", DType::f32, {c.N, c.K}, weights);
           index.token = d.out("token", DType::i32, {S});
           index.slots = d.out("slots", DType::i32, {S, c.K});
           index.shares = d.out("shares", DType::f32, {S, c.K});
           index.place = d.out("sent place", DType::i32, {c.N, c.R});
           index.experts = X;
           d.ops().dispatch_index(Lane::compute, index);
           const Tensor travelling = d.out("travelling", DType::f32, {S, C});
           const Tensor back = d.out("back", DType::f32, {S, C}), home = d.out("home", DType::f32, {c.N, C});
           d.ops().gather_rows(
               Lane::compute,
               {.x = d.in("x", DType::f32, {c.N, C}, x), .index = index.token, .y = travelling});
           std::int64_t first = 0;
           for (std::int64_t r = 0; r < c.R; ++r) {
             const std::int64_t M = sent.rows[static_cast<std::size_t>(r)];
             std::vector<std::int64_t> offsets(static_cast<std::size_t>(X) + 1, 0);
             for (const std::int32_t id : ids)
               if (id >= 0 && id / X == r) ++offsets[static_cast<std::size_t>(id % X) + 1];
             for (std::size_t e = 1; e < offsets.size(); ++e) offsets[e] += offsets[e - 1];
             const std::int64_t P = offsets.back();
             ExpertIndex sorted;
             sorted.slots = index.slots.rows(first, M);
             sorted.shares = index.shares.rows(first, M);
             sorted.row = d.out("row", DType::i32, {P});
             sorted.share = d.out("share", DType::f32, {P});
             sorted.place = d.out("place", DType::i32, {M, c.K});
             sorted.experts = X;
             d.ops().expert_index(Lane::compute, sorted);
             const Tensor expanded = d.out("expanded", DType::f32, {P, C}),
                          product = d.out("product", DType::f32, {P, C});
             d.ops().gather_rows(Lane::compute,
                                 {.x = travelling.rows(first, M), .index = sorted.row, .y = expanded});
             Floats experts(static_cast<std::size_t>(X * C * C), 0.f);
             for (std::int64_t e = 0; e < X; ++e)
               for (std::int64_t i = 0; i < C; ++i)
                 experts[static_cast<std::size_t>((e * C + i) * C + i)] = static_cast<float>(1 + r * X + e);
             d.ops().grouped_matmul(Lane::compute, {.a = expanded,
                                                    .b = d.in("experts", DType::f32, {X, C, C}, experts),
                                                    .c = product,
                                                    .offsets = offsets});
             d.ops().combine_rows(
                 Lane::compute,
                 {.x = product, .index = sorted.place, .weights = sorted.shares, .y = back.rows(first, M)});
             first += M;
           }
           d.ops().combine_rows(Lane::compute, {.x = back, .index = index.place, .y = home});
           return std::vector{home};
         },
         {rounded_once("home", DType::f32, want, [&](std::size_t i) { return 4 * kF32 * magnitude[i]; })});
  }
}

BOOST_AUTO_TEST_CASE(dispatch_refuses_what_was_counted_otherwise) {
  Device d(cpu());
  DispatchIndex a;
  a.ids = d.in("ids", {2, 1}, Ints{0, 3});
  a.weights = d.out("weights", DType::f32, {2, 1});
  a.place = d.out("place", DType::i32, {2, 2});
  a.experts = 2;
  for (const std::int64_t S : {1, 3}) {
    a.token = d.out("token", DType::i32, {S});
    a.slots = d.out("slots", DType::i32, {S, 1});
    a.shares = d.out("shares", DType::f32, {S, 1});
    BOOST_CHECK_THROW(d.ops().dispatch_index(Lane::compute, a), Error);
    ExpertIndex e;
    e.slots = a.ids;
    e.shares = a.weights;
    e.row = a.token;
    e.share = d.out("share", DType::f32, {S});
    e.place = d.out("place", DType::i32, {2, 1});
    e.experts = 4;
    BOOST_CHECK_THROW(d.ops().expert_index(Lane::compute, e), Error);
  }
  BOOST_TEST(d.intact());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace annulus::test
