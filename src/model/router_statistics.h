// How a row's tokens chose their experts: counted in the forward, all-reduced over the ranks of the row, and
// turned into the auxiliary loss and its gradient.
#pragma once
#include <vector>
#include "comm/comm.h"
#include "config/model_config.h"
#include "core/arena.h"
#include "ops/backend.h"

namespace annulus {

/// Over one row: N = its tokens (padding excepted) times its sparse layers.
struct RouterTotals {
  /// E * sum over e of f[e] P[e], where f = choices of e / N and P = sum of probabilities of e / N.
  double aux = 0;
  /// Choices of the most chosen expert of any layer, over those of the mean expert; 0 for an empty row.
  double load_max = 0;
};

class RouterStatistics {
 public:
  /// `context`: tensor face of the ranks that share a row.
  RouterStatistics(Backend&, Arena&, Comm& context, const ModelConfig&);

  /// Takes and zeroes the sums of a row.
  void begin();
  Tensor picked(std::int64_t layer) const;             // (E) f64
  Tensor probability() const { return probability_; }  // (E) f64, over all layers

  /// Between forward and backward, on every rank of the row: `used` tokens of it are not padding; the loss
  /// that is minimised holds weight * aux. Waits for the device.
  RouterTotals finish(std::int64_t used, double weight);
  /// dL/dp[n,e] of each of the row's tokens in each layer (E) f64; null where weight is 0.
  Tensor gradient() const { return gradient_; }
  /// Gives back what finish() has left.
  void end();

 private:
  Backend& backend_;
  Arena& arena_;
  Comm& context_;
  const ModelConfig& config_;
  Arena host_;
  Tensor on_host_, host_gradient_;  // pinned
  Tensor sums_, probability_, gradient_, gradient_memory_;
};

}  // namespace annulus
