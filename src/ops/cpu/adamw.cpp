// AdamW in double, stored to nearest (f32) or stochastically (bf16). The update uses the moments before they
// are rounded.
#include <cmath>
#include "ops/cpu/loops.h"
#include "ops/cpu/reference.h"

namespace annulus::ref {
namespace {

/// The random words of one element: those of the four elements that share a counter come from one draw.
struct Noise {
  std::uint64_t seed, stream;
  std::uint32_t of(Draw what, std::int64_t index) const {
    const auto i = static_cast<std::uint64_t>(index);
    return draw(seed, what, stream, i / 4)[i % 4];
  }
};

template <class S>
S rounded(double value, const Noise& noise, Draw what, std::int64_t index) {
  if constexpr (std::is_same_v<S, float>)
    return static_cast<float>(value);
  else
    return narrow_stochastic(static_cast<float>(value), noise.of(what, index));
}

}  // namespace

void adamw(const AdamW& a) {
  const std::int64_t n = a.master.shape[0];
  const double correct1 = 1.0 / (1.0 - std::pow(a.beta1, static_cast<double>(a.step)));
  const double correct2 = 1.0 / (1.0 - std::pow(a.beta2, static_cast<double>(a.step)));
  const double keep = 1.0 - a.lr * a.decay;
  const Noise noise{a.seed, (static_cast<std::uint64_t>(a.step) << 20) + a.parameter};
  by_type(a.grad.dtype, [&]<class G>(G) {
    by_type(a.master.dtype, [&]<class S>(S) {
      const G* grad = a.grad.as<G>();
      S *master = a.master.as<S>(), *m = a.m.as<S>(), *v = a.v.as<S>();
      for (std::int64_t i = 0; i < n; ++i) {
        const double g = widen(grad[i]) * a.grad_scale;
        const double m1 = a.beta1 * widen(m[i]) + (1.0 - a.beta1) * g;
        const double v1 = a.beta2 * widen(v[i]) + (1.0 - a.beta2) * g * g;
        const double w =
            widen(master[i]) * keep - a.lr * (m1 * correct1) / (std::sqrt(v1 * correct2) + a.eps);
        m[i] = rounded<S>(m1, noise, Draw::moment1, a.from + i);
        v[i] = rounded<S>(v1, noise, Draw::moment2, a.from + i);
        master[i] = rounded<S>(w, noise, Draw::weight, a.from + i);
      }
    });
  });
  if (a.weight) cast({.from = a.master, .to = a.weight});
}

}  // namespace annulus::ref
