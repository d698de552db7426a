// Routing of tokens to experts, and its gradient, in double.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>
#include "ops/cpu/loops.h"
#include "ops/cpu/reference.h"

namespace annulus::ref {
namespace {

std::size_t expert_of(std::int32_t id, std::int64_t E) {
  need(id >= 0 && id < E, "route: expert " + std::to_string(id) + " is none of the model's");
  return static_cast<std::size_t>(id);
}

/// p = softmax(z).
void softmax(const float* z, std::vector<double>& p) {
  const double top = *std::max_element(z, z + p.size());
  double sum = 0.0;
  for (std::size_t e = 0; e < p.size(); ++e) sum += p[e] = std::exp(z[e] - top);
  for (double& v : p) v /= sum;
}

/// The K largest of E logits, the first of equals first.
void choose(const float* z, std::int64_t E, std::int64_t K, std::int32_t* ids,
            std::vector<std::int32_t>& order) {
  std::iota(order.begin(), order.begin() + E, 0);
  const auto value = [z](std::int32_t e) {
    return std::isnan(z[e]) ? -std::numeric_limits<float>::infinity() : z[e];
  };
  std::partial_sort(order.begin(), order.begin() + K, order.end(), [&](std::int32_t a, std::int32_t b) {
    return value(a) != value(b) ? value(a) > value(b) : a < b;
  });
  std::copy_n(order.begin(), K, ids);
}

}  // namespace

void route_fwd(const RouteFwd& a) {
  const std::int64_t N = a.logits.shape[0], E = a.logits.shape[1], K = a.ids.shape[1];
  const std::int32_t* valid = a.valid.as<std::int32_t>();
  double* picked = a.picked ? a.picked.as<double>() : nullptr;
  double* probability = a.probability ? a.probability.as<double>() : nullptr;
  std::vector<double> p(static_cast<std::size_t>(E));
  std::vector<std::int32_t> order(p.size());
  for (std::int64_t n = 0; n < N; ++n) {
    const float* z = a.logits.as<float>() + n * E;
    std::int32_t* ids = a.ids.as<std::int32_t>() + n * K;
    float* weights = a.weights.as<float>() + n * K;
    if (valid[n] == 0) {
      if (!a.reuse) std::fill_n(ids, K, -1);
      std::fill_n(weights, K, 0.f);
      continue;
    }
    softmax(z, p);
    if (!a.reuse) choose(z, E, K, ids, order);
    double sum = 0.0;
    for (std::int64_t k = 0; k < K; ++k) sum += p[expert_of(ids[k], E)];
    for (std::int64_t k = 0; k < K; ++k) {
      const std::size_t e = expert_of(ids[k], E);
      weights[k] = static_cast<float>(a.normalize ? p[e] / sum : p[e]);
      if (picked != nullptr) picked[e] += 1.0;
    }
    for (std::size_t e = 0; probability != nullptr && e < p.size(); ++e) probability[e] += p[e];
  }
}

void route_bwd(const RouteBwd& a) {
  const std::int64_t N = a.logits.shape[0], E = a.logits.shape[1], K = a.ids.shape[1];
  const double* aux = a.aux ? a.aux.as<double>() : nullptr;
  std::vector<double> p(static_cast<std::size_t>(E)), dp(p.size());
  std::vector<float> dz(p.size());
  by_type(a.dlogits.dtype, [&]<class T>(T) {
    for (std::int64_t n = 0; n < N; ++n) {
      const std::int32_t* ids = a.ids.as<std::int32_t>() + n * K;
      const float* dw = a.dweights.as<float>() + n * K;
      std::fill(dz.begin(), dz.end(), 0.f);
      if (ids[0] >= 0) {
        softmax(a.logits.as<float>() + n * E, p);
        for (std::size_t e = 0; e < p.size(); ++e) dp[e] = aux != nullptr ? aux[e] : 0.0;
        double sum = 0.0, along = 0.0;  // of the chosen p; of dw * p over them
        for (std::int64_t k = 0; k < K; ++k) {
          const double chosen = p[expert_of(ids[k], E)];
          sum += chosen;
          along += dw[k] * chosen;
        }
        for (std::int64_t k = 0; k < K; ++k)
          dp[expert_of(ids[k], E)] += a.normalize ? (dw[k] - along / sum) / sum : dw[k];
        const double mean = std::inner_product(p.begin(), p.end(), dp.begin(), 0.0);
        for (std::size_t e = 0; e < p.size(); ++e) dz[e] = static_cast<float>(p[e] * (dp[e] - mean));
      }
      save(dz.data(), E, a.dlogits.as<T>() + n * E);
    }
  });
}

void route_count(const RouteCount& a) {
  const std::int64_t N = a.ids.shape[0], K = a.ids.shape[1], E = a.experts.shape[1], R = a.rows.shape[1];
  std::int64_t *experts = a.experts.as<std::int64_t>(), *rows = a.rows.as<std::int64_t>();
  std::fill_n(experts, a.experts.size(), 0);
  std::fill_n(rows, a.rows.size(), 0);
  std::vector<char> goes(static_cast<std::size_t>(R));
  for (std::int64_t n = 0; n < N; ++n) {
    const std::int64_t s = n / a.range;
    std::fill(goes.begin(), goes.end(), 0);
    for (std::int64_t k = 0; k < K; ++k) {
      const std::int32_t id = a.ids.as<std::int32_t>()[n * K + k];
      if (id < 0) continue;
      ++experts[s * E + std::int64_t(expert_of(id, E))];
      goes[static_cast<std::size_t>(id / (E / R))] = 1;
    }
    for (std::int64_t r = 0; r < R; ++r) rows[s * R + r] += goes[static_cast<std::size_t>(r)];
  }
}

}  // namespace annulus::ref
