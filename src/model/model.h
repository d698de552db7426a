// The transformer: one packed row forward, its loss, and backward.
#pragma once
#include <memory>
#include <vector>
#include "config/model_config.h"
#include "core/arena.h"
#include "ops/backend.h"
#include "parallel/ring_attention.h"
#include "parallel/row_map.h"
#include "parallel/sharded_state.h"

namespace annulus {

/// The units of a model, in the order of the forward: embedding, layers, head (the final norm, and the head's
/// matrix unless it is tied). Parameter ids count through all of them.
std::vector<Unit> make_units(const ModelConfig&);
inline constexpr int kEmbedUnit = 0;
inline int layer_unit(std::int64_t layer) {
  return 1 + static_cast<int>(layer);
}
inline int head_unit(const ModelConfig& c) {
  return 1 + static_cast<int>(c.L);
}

struct ModelOptions {
  DType compute = DType::f32;
  bool keep_attention = true;  // save attention output and log-sum-exp
  bool recompute = true;       // save only the layer's input (and attention); false: keep everything
  std::int64_t mlp_tile = 0;   // tokens; 0: all
  std::int64_t loss_tile = 0;  // tokens; 0: all
  std::int64_t sequence = 0;   // data.sequence
};

/// Sums over this rank's rows; the caller all-reduces them.
struct RowTotals {
  double nll = 0;   // sum over targets
  double hits = 0;  // targets that were the most likely token
  double entropy = 0;
};

class Model {
 public:
  /// `ring` and `state` work on the same backend and arena. `map` gives the number of local tokens (the same
  /// for every row of a run).
  Model(Backend&, Arena&, const ModelConfig&, ModelOptions, ShardedState&, RingAttention&, const Grid&);
  ~Model();

  /// One row: forward, loss, backward. Adds to the state's gradients the gradient of scale * sum of nll.
  /// The caller has begun the arena's phase. Collective over the shard and the ring group.
  /// Checks for a stop at every layer edge by calling `at_layer` (may throw).
  RowTotals train_row(const LocalRow&, double scale);
  /// Forward and loss only.
  RowTotals eval_row(const LocalRow&);

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace annulus
