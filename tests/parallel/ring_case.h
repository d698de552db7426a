// One attention problem over a whole row: inputs that every rank can make alone, the answer in double, and a
// run of RingAttention over a ring of real ranks.
#pragma once
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>
#include "core/bf16.h"
#include "parallel/ring_attention.h"
#include "parallel/rows.h"

namespace annulus::test {

struct RingCase {
  RowShape row;
  std::int64_t H, G, D, groups, window;
  int per_member;
  double offset = 0;  // keys of even documents score about +offset, of odd ones -offset, of others both
  std::uint64_t seed = 1;
  std::int64_t passage = std::int64_t{1} << 24;
};

/// Whole-row tensors by row position: q, o, d_o, dq (S, H, D); k, v, dk, dv (S, G, D); lse (S, H).
struct RingData {
  std::vector<double> q, k, v, d_o, o, lse, dq, dk, dv;
};

inline std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Inputs, rounded to T so that the answer in double is the answer for them.
template <class T>
RingData make_inputs(const RingCase& c, std::int64_t S) {
  const auto random = [&](std::uint64_t stream, std::int64_t n) {
    std::vector<double> x(at(n));
    for (std::int64_t i = 0; i < n; ++i)
      x[at(i)] = widen(
          store<T>(static_cast<float>(normal(c.seed, Draw::test, stream, static_cast<std::uint64_t>(i)))));
    return x;
  };
  RingData d{.q = random(1, S * c.H * c.D),
             .k = random(2, S * c.G * c.D),
             .v = random(3, S * c.G * c.D),
             .d_o = random(4, S * c.H * c.D),
             .o = {},
             .lse = {},
             .dq = {},
             .dk = {},
             .dv = {}};
  if (c.offset != 0) {
    // The first dimension alone makes the offset: scale * 16 * k0 = +-offset.
    const double k0 = c.offset * std::sqrt(static_cast<double>(c.D)) / 16;
    std::int64_t document = -1;
    for (std::int64_t p = 0; p < S; ++p) {
      document += std::binary_search(c.row.starts.begin(), c.row.starts.end(), p);
      const double sign = document % 3 == 0 ? 1 : document % 3 == 1 ? -1 : p % 16 < 8 ? -1 : 1;
      for (std::int64_t h = 0; h < c.H; ++h) d.q[at((p * c.H + h) * c.D)] = 16;
      for (std::int64_t g = 0; g < c.G; ++g)
        d.k[at((p * c.G + g) * c.D)] = widen(store<T>(static_cast<float>(sign * k0)));
    }
  }
  return d;
}

/// Attention and its gradients by plain loops in double.
inline void solve(const RingCase& c, std::int64_t S, RingData& d) {
  const auto first = plain_first(c.row, S, c.window);
  const double scale = 1 / std::sqrt(static_cast<double>(c.D));
  d.o.assign(d.q.size(), 0);
  d.dq.assign(d.q.size(), 0);
  d.dk.assign(d.k.size(), 0);
  d.dv.assign(d.k.size(), 0);
  d.lse.assign(at(S * c.H), 0);
  std::vector<double> score(at(S));
  const auto dot = [&](const std::vector<double>& a, std::int64_t i, const std::vector<double>& b,
                       std::int64_t j) {
    double sum = 0;
    for (std::int64_t x = 0; x < c.D; ++x) sum += a[at(i * c.D + x)] * b[at(j * c.D + x)];
    return sum;
  };
  const auto add = [&](std::vector<double>& y, std::int64_t i, double f, const std::vector<double>& x,
                       std::int64_t j) {
    for (std::int64_t e = 0; e < c.D; ++e) y[at(i * c.D + e)] += f * x[at(j * c.D + e)];
  };
  for (std::int64_t p = 0; p < S; ++p)
    for (std::int64_t h = 0; h < c.H; ++h) {
      const std::int64_t q = p * c.H + h, g = h / (c.H / c.G);
      double top = -INFINITY, sum = 0;
      for (std::int64_t j = first[at(p)]; j <= p; ++j)
        top = std::max(top, score[at(j)] = scale * dot(d.q, q, d.k, j * c.G + g));
      for (std::int64_t j = first[at(p)]; j <= p; ++j) sum += std::exp(score[at(j)] - top);
      d.lse[at(q)] = top + std::log(sum);
      for (std::int64_t j = first[at(p)]; j <= p; ++j)
        add(d.o, q, std::exp(score[at(j)] - d.lse[at(q)]), d.v, j * c.G + g);
      const double delta = dot(d.o, q, d.d_o, q);
      for (std::int64_t j = first[at(p)]; j <= p; ++j) {
        const std::int64_t key = j * c.G + g;
        const double weight = std::exp(score[at(j)] - d.lse[at(q)]);
        const double slope = scale * weight * (dot(d.d_o, q, d.v, key) - delta);
        add(d.dv, key, weight, d.d_o, q);
        add(d.dq, q, slope, d.k, key);
        add(d.dk, key, slope, d.q, q);
      }
    }
}

/// What one member computed, by local row: o, dq (Tm, H, D); lse (Tm, H); dk, dv (Tm, G, D).
struct MemberResult {
  std::vector<std::int64_t> positions;
  std::vector<float> o, lse, dq, dk, dv;
};

/// All tensors of a member, kept in an arena; one phase ("row") is a forward and a backward.
class RingRun {
 public:
  RingRun(Backend& backend, Arena& arena, Comm& ring, const RingCase& shape, std::int64_t Tm, DType T)
      : backend_(backend),
        arena_(arena),
        ring_(ring),
        T_(T),
        Tm_(Tm),
        H_(shape.H),
        G_(shape.G),
        D_(shape.D),
        attention_(backend, arena, ring,
                   {.H = H_,
                    .G = G_,
                    .D = D_,
                    .scale = 1 / std::sqrt(static_cast<double>(D_)),
                    .groups = shape.groups,
                    .passage = shape.passage},
                   T) {
    const auto keep = [&](const char* name, DType type, std::initializer_list<std::int64_t> dims) {
      return arena.keep(Region::workspace, name, type, dims);
    };
    first_ = keep("first", DType::i64, {Tm});
    q_ = keep("q", T, {Tm, H_, D_});
    kv_ = keep("kv", T, {2, Tm, G_, D_});
    spare_ = keep("spare kv", T, {2, Tm, G_, D_});
    o_ = keep("o", T, {Tm, H_, D_});
    d_o_ = keep("d_o", T, {Tm, H_, D_});
    lse_ = keep("lse", DType::f32, {H_, Tm});
    dq_ = keep("dq", attention_.grad_dtype(), {Tm, H_, D_});
    dkv_ = keep("dkv", attention_.grad_dtype(), {2, Tm, G_, D_});
  }
  /// Queues the calls and nothing else: enough where nothing is computed.
  void issue(const RowMap& map, std::int64_t window) {
    arena_.begin("row");
    attention_.forward(map, window, first_, q_, kv_, o_, lse_);
    // The caller may overwrite and bring back its keys in between: none may be on their way any more.
    backend_.queue().copy(Lane::compute, kv_, spare_);
    backend_.queue().zero(Lane::compute, kv_);
    backend_.queue().copy(Lane::compute, spare_, kv_);
    attention_.backward(map, window, first_, q_, kv_, o_, d_o_, lse_, dq_, dkv_);
  }
  MemberResult run(const RingCase& c, const RowMap& map, const RingData& d) {
    MemberResult r;
    for (const Run& run : map.runs(ring_.rank()))
      for (std::int64_t i = 0; i < run.count; ++i) r.positions.push_back(run.position + i);
    for (std::int64_t i = 0; i < Tm_; ++i)
      first_.as<std::int64_t>()[i] = map.first(r.positions[at(i)], c.window);
    put(d.q, r.positions, q_, H_ * D_);
    put(d.d_o, r.positions, d_o_, H_ * D_);
    put(d.k, r.positions, kv_.rows(0, 1), G_ * D_);
    put(d.v, r.positions, kv_.rows(1, 1), G_ * D_);
    for (const Tensor& t : {o_, lse_, dq_, dkv_})
      std::memset(t.data, 0xFF, at(t.bytes()));  // NaN until written
    issue(map, c.window);
    for (int l = 0; l < kLanes; ++l) backend_.queue().sync(backend_.queue().mark(static_cast<Lane>(l)));
    r.o = get(o_);
    r.dq = get(dq_);
    r.dk = get(dkv_.rows(0, 1));
    r.dv = get(dkv_.rows(1, 1));
    r.lse.resize(at(Tm_ * H_));
    for (std::int64_t i = 0; i < Tm_; ++i)
      for (std::int64_t h = 0; h < H_; ++h) r.lse[at(i * H_ + h)] = lse_.as<float>()[h * Tm_ + i];
    return r;
  }

 private:
  static void put(const std::vector<double>& whole, const std::vector<std::int64_t>& positions,
                  const Tensor& to, std::int64_t width) {
    for (std::size_t i = 0; i < positions.size(); ++i)
      for (std::int64_t x = 0; x < width; ++x) {
        const auto value = static_cast<float>(whole[at(positions[i] * width + x)]);
        const std::int64_t place = static_cast<std::int64_t>(i) * width + x;
        if (to.dtype == DType::f32)
          to.as<float>()[place] = value;
        else
          to.as<bf16>()[place] = narrow(value);
      }
  }
  static std::vector<float> get(const Tensor& t) {
    std::vector<float> x(at(t.size()));
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = t.dtype == DType::f32 ? t.as<float>()[i] : widen(t.as<bf16>()[i]);
    return x;
  }
  Backend& backend_;
  Arena& arena_;
  Comm& ring_;
  DType T_;
  std::int64_t Tm_, H_, G_, D_;
  RingAttention attention_;
  Tensor first_, q_, kv_, spare_, o_, d_o_, lse_, dq_, dkv_;
};

/// Largest errors of a member against the answer: outputs and gradients relative to the largest value of the
/// whole row, log-sum-exp to itself, where these are above 1.
struct RingErrors {
  double o = 0, lse = 0, dq = 0, dk = 0, dv = 0;
};

inline RingErrors errors_of(const RingCase& c, const MemberResult& got, const RingData& want) {
  const auto worst_of = [&](const std::vector<float>& part, const std::vector<double>& whole,
                            std::int64_t width) {
    double top = 1, worst = 0;
    for (double x : whole) top = std::max(top, std::abs(x));
    for (std::size_t i = 0; i < got.positions.size(); ++i)
      for (std::int64_t x = 0; x < width; ++x) {
        const double error = std::abs(part[i * at(width) + at(x)] - whole[at(got.positions[i] * width + x)]);
        worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
      }
    return worst / top;
  };
  RingErrors e{.o = worst_of(got.o, want.o, c.H * c.D),
               .lse = 0,
               .dq = worst_of(got.dq, want.dq, c.H * c.D),
               .dk = worst_of(got.dk, want.dk, c.G * c.D),
               .dv = worst_of(got.dv, want.dv, c.G * c.D)};
  for (std::size_t i = 0; i < got.positions.size(); ++i)
    for (std::int64_t h = 0; h < c.H; ++h) {
      const double exact = want.lse[at(got.positions[i] * c.H + h)];
      const double error = std::abs(got.lse[i * at(c.H) + at(h)] - exact) / std::max(1.0, std::abs(exact));
      e.lse = std::isfinite(error) ? std::max(e.lse, error) : INFINITY;
    }
  return e;
}

}  // namespace annulus::test
