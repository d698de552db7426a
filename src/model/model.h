// The transformer: one packed row forward, its loss, and backward.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>
#include "config/lora.h"
#include "config/model_config.h"
#include "core/arena.h"
#include "model/router_statistics.h"
#include "ops/backend.h"
#include "parallel/row_map.h"
#include "parallel/sharded_state.h"
#include "parallel/ulysses.h"

namespace annulus {

/// The units of a model: embedding, layers, head (the final norm, and the head's matrix unless it is tied),
/// in the order of the forward; then those of experts, by layer. With adapters all these are frozen, and the
/// adapters follow: those of each layer that has some, a unit each, then those of experts. Parameter ids
/// count through all of them.
std::vector<Unit> make_units(const ModelConfig&, const LoraConfig& = {});
inline constexpr int kEmbedUnit = 0;
inline int layer_unit(std::int64_t layer) {
  return 1 + static_cast<int>(layer);
}
inline int head_unit(const ModelConfig& c) {
  return 1 + static_cast<int>(c.L);
}
int experts_unit(const ModelConfig&, std::int64_t layer);
/// How many units the model has without its adapters.
int base_units(const ModelConfig&);
/// Whether a layer has adapters: but for its experts, and on these.
bool adapts_layer(const ModelConfig&, const LoraConfig&, std::int64_t layer);
bool adapts_experts(const ModelConfig&, const LoraConfig&, std::int64_t layer);
int adapter_unit(const ModelConfig&, const LoraConfig&, std::int64_t layer);
int expert_adapters_unit(const ModelConfig&, const LoraConfig&, std::int64_t layer);
/// The units that one layer uses, but for its experts, and those of its experts.
std::vector<int> layer_units(const ModelConfig&, const LoraConfig&, std::int64_t layer);
std::vector<int> expert_units(const ModelConfig&, const LoraConfig&, std::int64_t layer);

struct ModelOptions {
  LoraConfig lora;
  DType compute = DType::f32;
  bool keep_attention = true;       // save attention output and log-sum-exp
  bool recompute = true;            // save only the layer's input (and attention); false: keep everything
  std::int64_t mlp_tile = 0;        // tokens; 0: all
  std::int64_t loss_tile = 0;       // tokens; 0: all
  std::int64_t expert_tile = 0;     // tokens that travel to experts at a time; 0: all
  double imbalance = 1.25;          // rows of the fullest rank over the mean that buffers are made for
  std::int64_t sequence = 0;        // data.sequence; 0: not checked
  std::int64_t offload_layers = 0;  // the saved tensors of the first so many layers go to pinned host memory
  /// At the attention's backward only what it needs is alive: q|k|v before their rotation are computed again
  /// after it, and the next layer's weights and saved tensors come in after it. Costs one projection a layer.
  bool lean_backward = true;
  /// Called at every layer edge, forward and backward, by every rank alike; may throw (see abandon()).
  std::function<void()> at_layer;
};

/// Sums over this rank's rows; the caller all-reduces them.
struct RowTotals {
  double nll = 0;   // sum over targets
  double hits = 0;  // targets that were the most likely token
  double entropy = 0;
  RouterTotals router{};  // of the whole row, on all its ranks the same; of train_row
};

/// Tensor faces of the groups that a model with experts needs: the ranks of a row, and those that share the
/// experts.
struct ModelGroups {
  Comm *context = nullptr, *expert = nullptr;
};

/// What a layer's attention worked on and made, as this rank's heads of its ring place's tokens, at the one
/// moment at which all of it is alive.
struct AttentionTensors {
  const RowMap* map = nullptr;
  std::int64_t window = 0;
  Tensor q, kv, o, d_o;  // (Tm, h, D), (2, Tm, g, D), (Tm, h, D) twice
  Tensor lse;            // (h, Tm)
  Tensor dq, dkv;        // (Tm, h, D), (2, Tm, g, D)
};
using AttentionProbe = std::function<void(const AttentionTensors&)>;

class Model {
 public:
  /// Attention and state work on the same backend and arena. `map` gives the number of local tokens (the same
  /// for every row of a run).
  Model(Backend&, Arena&, const ModelConfig&, ModelOptions, ShardedState&, ContextAttention&, const Grid&,
        ModelGroups = {});
  ~Model();

  /// One row: forward, loss, backward. Adds to the state's gradients the gradient of scale * sum of nll +
  /// aux_scale * (tokens of the whole row) * its auxiliary loss. The caller has begun the arena's phase.
  /// Collective over all groups.
  RowTotals train_row(const LocalRow&, double scale, double aux_scale = 0);
  /// The same with one layer alone between the embedding and the loss; shows `probe` the layer's attention
  /// once its backward is queued on the compute lane.
  RowTotals probe_row(const LocalRow&, double scale, std::int64_t layer, const AttentionProbe& probe);
  /// Forward and loss only.
  RowTotals eval_row(const LocalRow&);
  /// Of each local token of the row that was run last, 0 where it has no target. Until the next row.
  std::span<const float> nll() const;

  /// After an exception out of the two above: forgets the row, with all temporaries of the arena and all
  /// gathered units. Weights and optimizer state are whole, so they can still be saved; gradients are not.
  void abandon();
  /// Pinned memory for rows and for what is saved on the host, once rows have run.
  std::int64_t host_bytes() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace annulus
