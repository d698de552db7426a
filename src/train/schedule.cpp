#include "train/schedule.h"
#include <algorithm>
#include <cmath>
#include <numbers>
#include "core/check.h"

namespace annulus {

std::int64_t warmup_steps(const OptimizerSection& o, std::int64_t total) {
  if (o.warmup >= 1) return static_cast<std::int64_t>(o.warmup);
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(total) * o.warmup));
}

double learning_rate(const OptimizerSection& o, std::int64_t step, std::int64_t total) {
  const std::int64_t warm = warmup_steps(o, total);
  if (step < warm) return o.lr * static_cast<double>(step) / static_cast<double>(warm);
  const double rest = static_cast<double>(std::max<std::int64_t>(1, total - warm));
  if (o.schedule == "linear") return o.lr * std::max(0.0, static_cast<double>(total - step) / rest);
  if (o.schedule == "cosine") {
    const double progress = static_cast<double>(step - warm) / rest;
    return o.lr * std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
  }
  need(o.schedule == "constant", "optimizer.schedule has been validated");
  return o.lr;
}

}  // namespace annulus
