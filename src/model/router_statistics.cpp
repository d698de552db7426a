#include "model/router_statistics.h"
#include <algorithm>

namespace annulus {

RouterStatistics::RouterStatistics(Backend& backend, Arena& arena, Comm& context, const ModelConfig& config)
    : backend_(backend),
      arena_(arena),
      context_(context),
      config_(config),
      host_(backend.queue(), backend.pinned()),
      on_host_(
          host_.keep(Region::workspace, "router sums", DType::f64, {config.sparse_layers() + 1, config.E})),
      host_gradient_(host_.keep(Region::workspace, "router gradient", DType::f64, {config.E})) {}

void RouterStatistics::begin() {
  const std::int64_t layers = config_.sparse_layers();
  sums_ = arena_.take(Region::workspace, "router sums", DType::f64, {layers + 1, config_.E});
  probability_ = sums_.rows(layers, 1).view({config_.E});
  backend_.queue().zero(Lane::compute, sums_);
}

Tensor RouterStatistics::picked(std::int64_t layer) const {
  const std::int64_t before = std::count(config_.sparse.begin(), config_.sparse.begin() + layer, 1);
  return sums_.rows(before, 1).view({config_.E});
}

RouterTotals RouterStatistics::finish(std::int64_t used, double weight) {
  Queue& queue = backend_.queue();
  const std::int64_t layers = config_.sparse_layers(), E = config_.E;
  queue.wait(Lane::reduce, queue.mark(Lane::compute));
  context_.all_reduce(Lane::reduce, sums_);
  queue.wait(Lane::compute, queue.mark(Lane::reduce));
  queue.copy(Lane::compute, sums_, on_host_);
  queue.sync(queue.mark(Lane::compute));
  arena_.give(sums_);
  sums_ = probability_ = {};
  gradient_memory_ = arena_.take(Region::workspace, "router gradient", DType::f64, {E});

  RouterTotals totals;
  if (backend_.pinned().real()) {
    const double* sums = on_host_.as<double>();
    double* gradient = host_gradient_.as<double>();
    const double N = static_cast<double>(used * layers);
    const double mean = static_cast<double>(used * config_.K) / static_cast<double>(E);  // choices of a layer
    for (std::int64_t e = 0; e < E; ++e) {
      double picked = 0, most = 0;
      for (std::int64_t l = 0; l < layers; ++l) {
        picked += sums[l * E + e];
        most = std::max(most, sums[l * E + e]);
      }
      gradient[e] = 0;
      if (used == 0) continue;
      gradient[e] = weight * static_cast<double>(E) * picked / N / N;
      totals.aux += static_cast<double>(E) * picked / N * sums[layers * E + e] / N;
      totals.load_max = std::max(totals.load_max, most / mean);
    }
  }
  queue.copy(Lane::compute, host_gradient_, gradient_memory_);
  gradient_ = weight != 0 ? gradient_memory_ : Tensor{};
  return totals;
}

void RouterStatistics::end() {
  arena_.give(gradient_memory_);
  gradient_ = gradient_memory_ = {};
}

}  // namespace annulus
