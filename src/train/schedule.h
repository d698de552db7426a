// The learning rate of every step, as transformers' schedules give it.
#pragma once
#include <cstdint>
#include "config/run_config.h"

namespace annulus {

/// Warm-up in steps: optimizer.warmup itself, or, below 1, that fraction of all steps, rounded up.
std::int64_t warmup_steps(const OptimizerSection&, std::int64_t total);

/// Rate of step `step` (from 0) of `total`, with W = warmup_steps:
///   step < W   lr * step / W
///   constant   lr
///   linear     lr * (total - step) / (total - W)
///   cosine     lr * (1 + cos(pi * (step - W) / (total - W))) / 2
double learning_rate(const OptimizerSection&, std::int64_t step, std::int64_t total);

}  // namespace annulus
