// Attention in several blocks and several calls, as the ring makes them: any order gives the one-shot answer.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include "ops/attention_cases.h"
#include "support/backends.h"

namespace annulus::test {
namespace {

constexpr std::int64_t kChunk = 37, kChunks = 4;
constexpr std::int64_t kRow = kChunk * kChunks;

/// A row of four chunks on two members, zigzag: member 0 holds chunks 0 and 3, member 1 holds 1 and 2. This
/// is member 0, visited by its own keys and by those of member 1.
struct Ring {
  const char* why;
  std::vector<std::int64_t> documents;
  std::int64_t window = 0;
  double step = 0.0;  // keys of odd chunks score this much more, even ones this much less
};

const Ring kRings[] = {{"one document", {}},
                       {"documents across chunks", {50, 1, 60}},
                       {"window", {}, 45},
                       {"scores of +-250 by chunk", {}, 0, 250.0}};

constexpr AttentionCase kShape{"", 4, 2, 24, 0, kRow, 0, kRow, Cover::partial, {}};

std::vector<std::int64_t> chunk_rows(std::initializer_list<std::int64_t> chunks) {
  std::vector<std::int64_t> rows;
  for (const std::int64_t c : chunks)
    for (std::int64_t i = 0; i < kChunk; ++i) rows.push_back(c * kChunk + i);
  return rows;
}

template <class T>
std::vector<T> pick(const std::vector<T>& all, const std::vector<std::int64_t>& rows, std::int64_t row_size) {
  std::vector<T> part;
  for (const std::int64_t r : rows)
    part.insert(part.end(), all.begin() + r * row_size, all.begin() + (r + 1) * row_size);
  return part;
}

/// The block of query chunk x, which lies at `q_at`, and key chunk y; its cover as a row map would find it.
AttentionBlock block(const AttentionInputs& whole, std::int64_t x, std::int64_t q_at, std::int64_t y,
                     std::int64_t k_at) {
  AttentionBlock b{q_at, kChunk, x * kChunk, k_at, kChunk, y * kChunk, Cover::partial};
  const auto last = whole.first.begin() + (x + 1) * kChunk - 1;  // `first` does not decrease
  if (*last <= y * kChunk && x >= y) b.cover = x == y ? Cover::causal : Cover::full;
  return b;
}

struct Visit {
  std::vector<std::int64_t> keys;  // rows of the visiting chunks
  std::vector<AttentionBlock> blocks;
};

struct Setup {
  AttentionInputs whole;
  std::vector<std::int64_t> queries = chunk_rows({0, 3});
  Visit own, other;

  explicit Setup(const Ring& ring, DType T) : whole(attention_inputs(kShape, T)) {
    whole.first = first_visible(ring.documents, ring.window, 0, kRow);
    if (ring.step != 0.0) {
      const double part = to_floats({std::sqrt(ring.step / whole.scale)}, T)[0];
      for (std::size_t i = 0; i < whole.q.size(); i += static_cast<std::size_t>(whole.D)) whole.q[i] = part;
      for (std::size_t i = 0; i < whole.k.size(); i += static_cast<std::size_t>(whole.D)) {
        const auto row = static_cast<std::int64_t>(i) / (whole.G * whole.D);
        whole.k[i] = row / kChunk % 2 == 1 ? part : -part;
      }
    }
    own = {chunk_rows({0, 3}),
           {block(whole, 0, 0, 0, 0), block(whole, 3, kChunk, 0, 0), block(whole, 3, kChunk, 3, kChunk)}};
    other = {chunk_rows({1, 2}), {block(whole, 3, kChunk, 1, 0), block(whole, 3, kChunk, 2, kChunk)}};
  }
};

/// Visits in this order, each with its blocks in this order.
std::vector<std::vector<Visit>> orders(const Setup& s) {
  std::vector<std::vector<Visit>> all{{s.own, s.other}, {s.other, s.own}};
  for (std::size_t i = 0; i < 2; ++i) {
    auto reversed = all[i];
    for (Visit& v : reversed) std::reverse(v.blocks.begin(), v.blocks.end());
    all.push_back(reversed);
  }
  std::vector<Visit> single;  // a call a block
  for (const Visit& v : {s.other, s.own})
    for (const AttentionBlock& b : v.blocks) single.push_back({v.keys, {b}});
  all.push_back(single);
  return all;
}

class Member {
 public:
  Member(Device& d, DType T, const Setup& s) : d_(d), T_(T), in_(s.whole), rows_(s.queries) {
    q_ = put("q", in_.q, in_.H, rows_);
    first_ = d.in("first", {count()}, pick(in_.first, rows_, 1));
  }
  std::int64_t count() const { return static_cast<std::int64_t>(rows_.size()); }
  Tensor put(const char* name, const Doubles& x, std::int64_t heads, const std::vector<std::int64_t>& rows) {
    return d_.in(name, T_, {static_cast<std::int64_t>(rows.size()), heads, in_.D},
                 to_floats(pick(x, rows, heads * in_.D), T_));
  }

  std::vector<Tensor> forward(const std::vector<Visit>& visits) {
    AttentionFwd a;
    a.q = q_;
    a.first = first_;
    a.acc = d_.out("acc", DType::f32, {count(), in_.H, in_.D});
    a.lse = d_.out("lse", DType::f32, {in_.H, count()});
    a.o = d_.out("o", T_, {count(), in_.H, in_.D});
    a.scale = in_.scale;
    for (const Visit& v : visits) {
      a.k = put("k", in_.k, in_.G, v.keys);
      a.v = put("v", in_.v, in_.G, v.keys);
      a.blocks = v.blocks;
      a.begins = &v == &visits.front();
      a.ends = &v == &visits.back();
      a.workspace = d_.bytes("workspace", d_.ops().attention_fwd_bytes(a));
      d_.ops().attention_fwd(Lane::compute, a);
    }
    return {a.o, a.lse};
  }

  /// dq, and dk and dv of the member's own keys.
  std::vector<Tensor> backward(const std::vector<Visit>& visits, const Doubles& o, const Doubles& d_o,
                               const Floats& lse, const Floats& delta, const std::vector<std::int64_t>& own) {
    const auto zeros = [&](const char* name, std::int64_t heads) {
      return d_.in(name, DType::f32, {count(), heads, in_.D},
                   Floats(static_cast<std::size_t>(count() * heads * in_.D)));
    };
    AttentionBwd a;
    a.q = q_;
    a.first = first_;
    a.o = put("o", o, in_.H, rows_);
    a.d_o = put("d_o", d_o, in_.H, rows_);
    a.lse = d_.in("lse", DType::f32, {in_.H, count()}, lse);
    a.delta = d_.in("delta", DType::f32, {in_.H, count()}, delta);
    a.dq = zeros("dq", in_.H);
    a.scale = in_.scale;
    const Tensor dk = zeros("dk", in_.G), dv = zeros("dv", in_.G), other_dk = zeros("dk", in_.G),
                 other_dv = zeros("dv", in_.G);
    for (const Visit& v : visits) {
      a.k = put("k", in_.k, in_.G, v.keys);
      a.v = put("v", in_.v, in_.G, v.keys);
      a.dk = v.keys == own ? dk : other_dk;
      a.dv = v.keys == own ? dv : other_dv;
      a.blocks = v.blocks;
      a.workspace = d_.bytes("workspace", d_.ops().attention_bwd_bytes(a));
      d_.ops().attention_bwd(Lane::compute, a);
    }
    return {a.dq, dk, dv};
  }

 private:
  Device& d_;
  DType T_;
  const AttentionInputs& in_;
  std::vector<std::int64_t> rows_;
  Tensor q_, first_;
};

/// (H, Tq) of the whole row, at the member's queries.
template <class T>
std::vector<T> pick_stats(const std::vector<T>& all, const Setup& s) {
  std::vector<T> part;
  for (std::int64_t h = 0; h < s.whole.H; ++h)
    for (const std::int64_t r : s.queries) part.push_back(all[static_cast<std::size_t>(h * kRow + r)]);
  return part;
}

/// Roundings in f32, of merges and of scores of this size, as a share of values near 1. Measured 0.8 of it.
double slack(const Ring& ring) {
  return kF32 * (16 + 24 * ring.step);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(ops)

BOOST_AUTO_TEST_CASE(attention_fwd_in_any_order_of_blocks) {
  for (const DType T : kTypes)
    for (const Ring& ring : kRings) {
      const Setup s(ring, T);
      const AttentionOutputs want = plain_attention(s.whole);
      const std::vector<Expected> expected{
          rounded_once("o", T, pick(want.o, s.queries, s.whole.H * s.whole.D), slack(ring)),
          rounded_once("lse", DType::f32, pick_stats(want.lse, s), slack(ring))};
      AttentionInputs low = s.whole;
      low.round_weights = T == DType::bf16;
      const AttentionOutputs plain = plain_attention(low);
      for (const auto& visits : orders(s))
        hold(
            ring.why, [&](Device& d) { return Member(d, T, s).forward(visits); }, expected,
            std::vector{to_floats(pick(plain.o, s.queries, s.whole.H * s.whole.D), T),
                        to_floats(pick_stats(plain.lse, s))});
    }
}

BOOST_AUTO_TEST_CASE(attention_bwd_in_any_order_of_blocks) {
  for (const DType T : kTypes)
    for (const Ring& ring : kRings) {
      const Setup s(ring, T);
      const AttentionInputs& in = s.whole;
      const AttentionOutputs fwd = plain_attention(in);
      const Doubles o = to_doubles(to_floats(fwd.o, T));
      Doubles d_o = to_doubles(random_values(T, 7, {kRow, in.H, in.D}));
      const std::int64_t row = in.H * in.D;  // the other member's queries add nothing here
      for (std::int64_t i = kChunk * row; i < 3 * kChunk * row; ++i) d_o[static_cast<std::size_t>(i)] = 0.0;
      const Floats lse = to_floats(fwd.lse), delta = to_floats(plain_delta(in, o, d_o));
      AttentionInputs low = in;
      low.round_weights = T == DType::bf16;
      const AttentionGradients want = plain_attention_bwd(in, d_o, to_doubles(lse), to_doubles(delta));
      const AttentionGradients plain = plain_attention_bwd(low, d_o, to_doubles(lse), to_doubles(delta));
      const double error = score_error(*std::max_element(fwd.magnitude.begin(), fwd.magnitude.end()), in.D);
      const std::int64_t key_row = in.G * in.D;
      const auto expect = [&](const char* name, const Doubles& exact, const Doubles& terms,
                              std::int64_t size) {
        const Doubles mine = pick(terms, s.queries, size);
        return rounded_once(name, DType::f32, pick(exact, s.queries, size),
                            [&](std::size_t i) { return error * mine[i] + kF32; });
      };
      const std::vector<Expected> expected{expect("dq", want.dq, want.dq_terms, row),
                                           expect("dk", want.dk, want.dk_terms, key_row),
                                           expect("dv", want.dv, want.dv_terms, key_row)};
      for (const auto& visits : orders(s))
        hold(
            ring.why,
            [&](Device& d) {
              return Member(d, T, s).backward(visits, o, d_o, pick_stats(lse, s), pick_stats(delta, s),
                                              s.own.keys);
            },
            expected,
            std::vector{to_floats(pick(plain.dq, s.queries, row)),
                        to_floats(pick(plain.dk, s.queries, key_row)),
                        to_floats(pick(plain.dv, s.queries, key_row))});
    }
}

BOOST_AUTO_TEST_CASE(attention_refuses_a_cover_that_shows_hidden_keys) {
  Setup s(kRings[1], DType::f32);       // documents across chunks
  s.own.blocks[1].cover = Cover::full;  // of chunk 3 against chunk 0
  Device d(cpu());
  Member member(d, DType::f32, s);
  BOOST_CHECK_THROW(member.forward({s.own}), Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace annulus::test
