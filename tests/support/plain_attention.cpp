#include "support/plain_attention.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include "core/bf16.h"

namespace annulus::test {
namespace {

double bf16_of(double v) {
  return widen(narrow(static_cast<float>(v)));
}

/// Offsets into (T, heads, D).
std::size_t at(std::int64_t row, std::int64_t heads, std::int64_t head, std::int64_t D) {
  return static_cast<std::size_t>((row * heads + head) * D);
}

double dot(const double* a, const double* b, std::int64_t D) {
  double s = 0.0;
  for (std::int64_t d = 0; d < D; ++d) s += a[d] * b[d];
  return s;
}

/// Calls f(query row, key row) for every pair that sees each other, block by block.
template <class F>
void pairs(const AttentionInputs& in, F&& f) {
  for (const AttentionBlock& b : in.blocks)
    for (std::int64_t i = 0; i < b.q_count; ++i)
      for (std::int64_t j = 0; j < b.k_count; ++j) {
        const std::int64_t row = b.q_at + i, key = b.k_position + j;
        if (in.first[static_cast<std::size_t>(row)] <= key && key <= b.q_position + i) f(row, b.k_at + j);
      }
}

struct Heads {
  const AttentionInputs& in;
  const double* q(std::int64_t i, std::int64_t h) const { return &in.q[at(i, in.H, h, in.D)]; }
  const double* k(std::int64_t j, std::int64_t h) const { return &in.k[at(j, in.G, group(h), in.D)]; }
  const double* v(std::int64_t j, std::int64_t h) const { return &in.v[at(j, in.G, group(h), in.D)]; }
  std::int64_t group(std::int64_t h) const { return h / (in.H / in.G); }
  std::size_t stat(std::int64_t h, std::int64_t i) const { return static_cast<std::size_t>(h * in.Tq + i); }
  double score(std::int64_t i, std::int64_t j, std::int64_t h) const {
    return in.scale * dot(q(i, h), k(j, h), in.D);
  }
};

}  // namespace

AttentionOutputs plain_attention(const AttentionInputs& in) {
  const Heads x{in};
  const auto stats = static_cast<std::size_t>(in.H * in.Tq);
  AttentionOutputs r{Doubles(in.q.size(), 0.0), Doubles(stats, 0.0), Doubles(stats, 0.0)};
  Doubles top(stats, -std::numeric_limits<double>::infinity()), total(stats, 0.0);
  pairs(in, [&](std::int64_t i, std::int64_t j) {
    for (std::int64_t h = 0; h < in.H; ++h) {
      const std::size_t s = x.stat(h, i);
      top[s] = std::max(top[s], x.score(i, j, h));
      double terms = 0.0;
      for (std::int64_t d = 0; d < in.D; ++d) terms += std::abs(x.q(i, h)[d] * x.k(j, h)[d]);
      r.magnitude[s] = std::max(r.magnitude[s], terms * in.scale);
    }
  });
  pairs(in, [&](std::int64_t i, std::int64_t j) {
    for (std::int64_t h = 0; h < in.H; ++h) {
      const std::size_t s = x.stat(h, i);
      const double p = std::exp(x.score(i, j, h) - top[s]);
      total[s] += p;
      for (std::int64_t d = 0; d < in.D; ++d)
        r.o[at(i, in.H, h, in.D) + static_cast<std::size_t>(d)] +=
            (in.round_weights ? bf16_of(p) : p) * x.v(j, h)[d];
    }
  });
  for (std::int64_t h = 0; h < in.H; ++h)
    for (std::int64_t i = 0; i < in.Tq; ++i) {
      const std::size_t s = x.stat(h, i);
      r.lse[s] = top[s] + std::log(total[s]);  // -inf + -inf where no key was seen
      if (total[s] == 0.0) continue;
      for (std::int64_t d = 0; d < in.D; ++d)
        r.o[at(i, in.H, h, in.D) + static_cast<std::size_t>(d)] /= total[s];
    }
  return r;
}

AttentionGradients plain_attention_bwd(const AttentionInputs& in, const Doubles& d_o, const Doubles& lse,
                                       const Doubles& delta) {
  const Heads x{in};
  AttentionGradients g{Doubles(in.q.size(), 0.0), Doubles(in.k.size(), 0.0), Doubles(in.k.size(), 0.0),
                       Doubles(in.q.size(), 0.0), Doubles(in.k.size(), 0.0), Doubles(in.k.size(), 0.0)};
  pairs(in, [&](std::int64_t i, std::int64_t j) {
    for (std::int64_t h = 0; h < in.H; ++h) {
      const std::size_t s = x.stat(h, i), iq = at(i, in.H, h, in.D), jk = at(j, in.G, x.group(h), in.D);
      const double p = std::exp(x.score(i, j, h) - lse[s]);
      const double dp = dot(&d_o[iq], x.v(j, h), in.D);
      double weight = p, ds = p * (dp - delta[s]) * in.scale;
      const double ds_terms = p * (std::abs(dp) + std::abs(delta[s])) * in.scale;
      if (in.round_weights) weight = bf16_of(weight), ds = bf16_of(ds);
      for (std::size_t d = 0; d < static_cast<std::size_t>(in.D); ++d) {
        g.dv[jk + d] += weight * d_o[iq + d];
        g.dq[iq + d] += ds * in.k[jk + d];
        g.dk[jk + d] += ds * in.q[iq + d];
        g.dv_terms[jk + d] += p * std::abs(d_o[iq + d]);
        g.dq_terms[iq + d] += ds_terms * std::abs(in.k[jk + d]);
        g.dk_terms[jk + d] += ds_terms * std::abs(in.q[iq + d]);
      }
    }
  });
  return g;
}

Doubles plain_delta(const AttentionInputs& in, const Doubles& o, const Doubles& d_o) {
  Doubles delta(static_cast<std::size_t>(in.H * in.Tq));
  for (std::int64_t h = 0; h < in.H; ++h)
    for (std::int64_t i = 0; i < in.Tq; ++i) {
      const std::size_t iq = at(i, in.H, h, in.D);
      delta[static_cast<std::size_t>(h * in.Tq + i)] = dot(&o[iq], &d_o[iq], in.D);
    }
  return delta;
}

}  // namespace annulus::test
