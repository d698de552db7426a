// Softmax cross-entropy: a row of logits becomes its gradient.
#include <algorithm>
#include <cmath>
#include <vector>
#include "ops/cpu/exp.h"
#include "ops/cpu/loops.h"
#include "ops/cpu/reference.h"

namespace annulus::ref {
namespace {

float largest(const float* z, std::int64_t V) {
  float top = z[0];
#pragma omp simd reduction(max : top)
  for (std::int64_t v = 0; v < V; ++v) top = z[v] > top ? z[v] : top;
  return top;
}

}  // namespace

void loss_tile(const LossTile& a) {
  const std::int64_t N = a.logits.shape[0], V = a.logits.shape[1];
  const std::int32_t* targets = a.targets.as<std::int32_t>();
  float *nll = a.nll.as<float>(), *hit = a.hit ? a.hit.as<float>() : nullptr;
  float* entropy = a.entropy ? a.entropy.as<float>() : nullptr;
  std::vector<float> row(static_cast<std::size_t>(V));
  float* z = row.data();
  by_type(a.logits.dtype, [&]<class T>(T) {
    for (std::int64_t n = 0; n < N; ++n) {
      T* logits = a.logits.as<T>() + n * V;
      const std::int64_t target = targets[n];
      need(target < V, "loss: target " + std::to_string(target) + " outside the vocabulary");
      if (target < 0) {
        nll[n] = 0.f;
        if (hit != nullptr) hit[n] = 0.f;
        if (entropy != nullptr) entropy[n] = 0.f;
        std::fill(logits, logits + V, store<T>(0.f));
        continue;
      }
      load(logits, V, z);
      const float top = largest(z, V);
      const double behind = double(top) - z[target];  // how far the target is below the largest
      if (hit != nullptr) hit[n] = std::find(z, z + V, top) - z == target ? 1.f : 0.f;

      double sum = 0.0, weighted = 0.0;  // of e^(z - top), and of (z - top) e^(z - top)
#pragma omp simd reduction(+ : sum, weighted)
      for (std::int64_t v = 0; v < V; ++v) {
        const float below = z[v] - top;
        const float e = exp_fast(below);
        sum += e;
        weighted += e > 0.f ? double(below) * e : 0.0;  // not 0 * inf
        z[v] = e;
      }
      nll[n] = static_cast<float>(std::log(sum) + behind);
      if (entropy != nullptr) entropy[n] = static_cast<float>(std::log(sum) - weighted / sum);
      const double factor = a.scale / sum;
      const float at_target = static_cast<float>(factor * (z[target] - sum));
#pragma omp simd
      for (std::int64_t v = 0; v < V; ++v) z[v] = static_cast<float>(z[v] * factor);
      z[target] = at_target;
      save(z, V, logits);
    }
  });
}

}  // namespace annulus::ref
