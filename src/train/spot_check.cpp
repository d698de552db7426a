#include "train/spot_check.h"
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>
#include <thread>
#include <vector>
#include "core/bf16.h"
#include "core/rng.h"
#include "parallel/ring_travel.h"
#include "train/clock.h"
#include "train/memory_plan.h"

namespace annulus {
namespace {

using Row = std::vector<double>;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Row positions by local row of a ring member.
std::vector<std::int64_t> positions_of(const RowMap& map, int member) {
  std::vector<std::int64_t> positions(at(map.member_tokens()));
  for (const Run& run : map.runs(member))
    for (std::int64_t i = 0; i < run.count; ++i) positions[at(run.at + i)] = run.position + i;
  return positions;
}

/// Host memory of f32 or bf16, read as double.
class Values {
 public:
  explicit Values(const Tensor& host) : t_(host) {}
  void read(std::int64_t from, std::int64_t count, double* to) const {
    if (t_.dtype == DType::f32)
      for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<const float*>(t_.data)[from + i];
    else
      for (std::int64_t i = 0; i < count; ++i) to[i] = widen(static_cast<const bf16*>(t_.data)[from + i]);
  }
  double dot(std::int64_t from, const double* x, std::int64_t count) const {
    return t_.dtype == DType::f32 ? sum(static_cast<const float*>(t_.data) + from, x, count)
                                  : sum(static_cast<const bf16*>(t_.data) + from, x, count);
  }
  void add_to(double* y, double factor, std::int64_t from, std::int64_t count) const {
    if (t_.dtype == DType::f32)
      add(y, factor, static_cast<const float*>(t_.data) + from, count);
    else
      add(y, factor, static_cast<const bf16*>(t_.data) + from, count);
  }

 private:
  static double value(float x) { return x; }
  static double value(bf16 x) { return widen(x); }
  template <class T>
  static double sum(const T* a, const double* x, std::int64_t count) {
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (std::int64_t i = 0; i < count; ++i) s += value(a[i]) * x[i];
    return s;
  }
  template <class T>
  static void add(double* y, double factor, const T* x, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] += factor * value(x[i]);
  }
  Tensor t_;
};

/// The problem on the host.
struct Problem {
  std::int64_t Tm, H, G, D, window;
  double scale;
  const RowMap* map;
  std::vector<std::int64_t> mine;                 // positions of the rank's rows
  std::vector<std::vector<std::int64_t>> copies;  // of its keys' rows, by ring step
  Values q, kv, o, d_o, lse, dq, dkv;
};

void note(SpotCheck::Error& e, double got, double want) {
  const double error = std::abs(got - want);
  e.worst = std::isfinite(error) ? std::max(e.worst, error) : std::numeric_limits<double>::infinity();
  e.largest = std::max(e.largest, std::abs(want));
}

/// What one sample found; samples are worked on side by side and joined in order.
void join(SpotCheck::Error& all, const SpotCheck::Error& one) {
  all.worst = std::max(all.worst, one.worst);
  all.largest = std::max(all.largest, one.largest);
}

/// How often each key row is seen by the query of local row `i`.
std::vector<std::int64_t> weights_for(const Problem& p, std::int64_t i) {
  std::vector<std::int64_t> times(at(p.Tm), 0);
  const std::int64_t last = p.mine[at(i)], first = p.map->first(last, p.window);
  for (const auto& places : p.copies)
    for (std::int64_t j = 0; j < p.Tm; ++j) times[at(j)] += first <= places[at(j)] && places[at(j)] <= last;
  return times;
}

void check_query(const Problem& p, std::int64_t i, SpotCheck& found) {
  const std::vector<std::int64_t> times = weights_for(p, i);
  for (const std::int64_t n : times) found.seen += n;
  Row q(at(p.D)), d_o(q), got(q), o(q), dq(q), score(at(p.Tm));
  for (std::int64_t h = 0; h < p.H; ++h) {
    const std::int64_t g = h / (p.H / p.G), row = (i * p.H + h) * p.D;
    const auto key = [&](std::int64_t j) { return (j * p.G + g) * p.D; };
    const auto value = [&](std::int64_t j) { return ((p.Tm + j) * p.G + g) * p.D; };
    p.q.read(row, p.D, q.data());
    p.d_o.read(row, p.D, d_o.data());
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (std::int64_t j = 0; j < p.Tm; ++j)
      if (times[at(j)] > 0) top = std::max(top, score[at(j)] = p.scale * p.kv.dot(key(j), q.data(), p.D));
    for (std::int64_t j = 0; j < p.Tm; ++j)
      if (times[at(j)] > 0) sum += static_cast<double>(times[at(j)]) * std::exp(score[at(j)] - top);
    const double lse = top + std::log(sum);
    std::fill(o.begin(), o.end(), 0.0);
    std::fill(dq.begin(), dq.end(), 0.0);
    for (std::int64_t j = 0; j < p.Tm; ++j)
      if (times[at(j)] > 0)
        p.kv.add_to(o.data(), static_cast<double>(times[at(j)]) * std::exp(score[at(j)] - lse), value(j),
                    p.D);
    double delta = 0;
    for (std::int64_t d = 0; d < p.D; ++d) delta += o[at(d)] * d_o[at(d)];
    for (std::int64_t j = 0; j < p.Tm; ++j) {
      if (times[at(j)] == 0) continue;
      const double weight = static_cast<double>(times[at(j)]) * std::exp(score[at(j)] - lse);
      p.kv.add_to(dq.data(), p.scale * weight * (p.kv.dot(value(j), d_o.data(), p.D) - delta), key(j), p.D);
    }
    p.o.read(row, p.D, got.data());
    for (std::int64_t d = 0; d < p.D; ++d) note(found.o, got[at(d)], o[at(d)]);
    p.dq.read(row, p.D, got.data());
    for (std::int64_t d = 0; d < p.D; ++d) note(found.dq, got[at(d)], dq[at(d)]);
    p.lse.read(h * p.Tm + i, 1, got.data());
    note(found.lse, got[0], lse);
  }
}

void check_key(const Problem& p, std::int64_t j, SpotCheck& found) {
  Row key(at(p.D)), value(key), o(key), d_o(key), dk(key), dv(key), got(key);
  std::vector<std::int64_t> times(at(p.Tm), 0);
  for (std::int64_t i = 0; i < p.Tm; ++i) {
    const std::int64_t last = p.mine[at(i)], first = p.map->first(last, p.window);
    for (const auto& places : p.copies) times[at(i)] += first <= places[at(j)] && places[at(j)] <= last;
  }
  for (std::int64_t g = 0; g < p.G; ++g) {
    const std::int64_t row = (j * p.G + g) * p.D, half = p.Tm * p.G * p.D;
    p.kv.read(row, p.D, key.data());
    p.kv.read(half + row, p.D, value.data());
    std::fill(dk.begin(), dk.end(), 0.0);
    std::fill(dv.begin(), dv.end(), 0.0);
    for (std::int64_t h = g * (p.H / p.G); h < (g + 1) * (p.H / p.G); ++h)
      for (std::int64_t i = 0; i < p.Tm; ++i) {
        if (times[at(i)] == 0) continue;
        const std::int64_t query = (i * p.H + h) * p.D;
        double lse = 0;
        p.lse.read(h * p.Tm + i, 1, &lse);
        const double weight =
            static_cast<double>(times[at(i)]) * std::exp(p.scale * p.q.dot(query, key.data(), p.D) - lse);
        p.d_o.read(query, p.D, d_o.data());
        const double delta = p.o.dot(query, d_o.data(), p.D);
        p.d_o.add_to(dv.data(), weight, query, p.D);
        p.q.add_to(dk.data(), p.scale * weight * (p.d_o.dot(query, value.data(), p.D) - delta), query, p.D);
      }
    p.dkv.read(row, p.D, got.data());
    for (std::int64_t d = 0; d < p.D; ++d) note(found.dk, got[at(d)], dk[at(d)]);
    p.dkv.read(half + row, p.D, got.data());
    for (std::int64_t d = 0; d < p.D; ++d) note(found.dv, got[at(d)], dv[at(d)]);
  }
}

/// `samples` different rows of `rows`, or all there are.
std::vector<std::int64_t> sample(std::int64_t rows, std::int64_t samples, std::uint64_t stream) {
  std::set<std::int64_t> chosen;
  for (std::uint64_t n = 0; static_cast<std::int64_t>(chosen.size()) < std::min(rows, samples); ++n) {
    const auto bits = draw(1, Draw::test, stream, n);
    const std::uint64_t wide = std::uint64_t{bits[0]} << 32 | bits[1];
    chosen.insert(static_cast<std::int64_t>(wide % static_cast<std::uint64_t>(rows)));
  }
  return {chosen.begin(), chosen.end()};
}

/// Calls work(0) to work(count - 1) on all processors.
void side_by_side(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  const auto loop = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::jthread> others;
  for (unsigned n = 1; n < std::min<std::size_t>(std::thread::hardware_concurrency(), count); ++n)
    others.emplace_back(loop);
  loop();
}

std::string line(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

}  // namespace

std::int64_t spot_check_bytes(const AttentionTensors& t) {
  std::int64_t bytes = 0;
  for (const Tensor& x : {t.q, t.kv, t.o, t.d_o, t.lse, t.dq, t.dkv}) bytes += x.bytes();
  return bytes;
}

SpotCheck spot_check(Backend& backend, const AttentionTensors& t, int me, double scale,
                     std::int64_t samples) {
  const double begun = steady_seconds();
  const Route route(*t.map, t.window, me);
  for (int m = 0; m < route.size(); ++m)
    if (route.reach(m) != route.size() - 1)
      usage_error(
          "--check takes rows whose keys travel all the way round the ring, and here those of member " +
          std::to_string(m) + " stop after " + std::to_string(route.reach(m)) + " of " +
          std::to_string(route.size() - 1) + " steps; leave --document or --check out");
  const std::int64_t needed = spot_check_bytes(t), free = host_bytes_free();
  if (t.q.place == Place::device && needed > free / 10 * 9)
    environment_error("--check copies " + line("%.2f GB", static_cast<double>(needed) * 1e-9) +
                      " of the last layer's attention to the host, which has " +
                      line("%.2f GB", static_cast<double>(free) * 1e-9) + " free; leave it out");

  backend.queue().sync(backend.queue().mark(Lane::compute));
  Staging staging(backend);
  const auto host = [&](const Tensor& x) { return Values(staging.on_host(x.span(0, x.size()))); };
  Problem p{.Tm = t.q.shape[0],
            .H = t.q.shape[1],
            .G = t.kv.shape[2],
            .D = t.q.shape[2],
            .window = t.window,
            .scale = scale,
            .map = t.map,
            .mine = positions_of(*t.map, me),
            .copies = {},
            .q = host(t.q),
            .kv = host(t.kv),
            .o = host(t.o),
            .d_o = host(t.d_o),
            .lse = host(t.lse),
            .dq = host(t.dq),
            .dkv = host(t.dkv)};
  for (int s = 0; s < route.size(); ++s) p.copies.push_back(positions_of(*t.map, route.owner(s)));

  const std::vector<std::int64_t> queries = sample(p.Tm, samples, 1), keys = sample(p.Tm, samples, 2);
  std::vector<SpotCheck> parts(queries.size() + keys.size());
  side_by_side(parts.size(), [&](std::size_t n) {
    if (n < queries.size())
      check_query(p, queries[n], parts[n]);
    else
      check_key(p, keys[n - queries.size()], parts[n]);
  });
  SpotCheck all;
  all.queries = static_cast<std::int64_t>(queries.size());
  all.keys = static_cast<std::int64_t>(keys.size());
  for (const SpotCheck& part : parts) {
    all.seen += part.seen;
    join(all.o, part.o);
    join(all.lse, part.lse);
    join(all.dq, part.dq);
    join(all.dk, part.dk);
    join(all.dv, part.dv);
  }
  all.seconds = steady_seconds() - begun;
  return all;
}

std::string describe(const SpotCheck& c) {
  const auto part = [](const char* name, const SpotCheck::Error& e) {
    return line("%s %.2e of %.2e", name, e.worst, e.largest);
  };
  return line(
             "last layer's attention in f64, largest error of largest value: %lld queries that see %lld "
             "keys: ",
             static_cast<long long>(c.queries), static_cast<long long>(c.seen)) +
         part("output", c.o) + part(", log-sum-exp", c.lse) + part(", dQ", c.dq) +
         line("; %lld keys: ", static_cast<long long>(c.keys)) + part("dK", c.dk) + part(", dV", c.dv) +
         line(" (%.1f s)", c.seconds);
}

}  // namespace annulus
