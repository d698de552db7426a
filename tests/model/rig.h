// A tiny model with everything that it runs on, over any group of ranks.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include "model/model.h"

namespace annulus::test {

/// A whole row, before it is cut.
struct WholeRow {
  RowShape shape;
  std::vector<std::int32_t> ids;      // (used)
  std::vector<std::int32_t> targets;  // (used) shifted; -1: none
};

/// Documents of these lengths, with random ids; every token but a document's last one has a target.
WholeRow make_row(std::int64_t sequence, const std::vector<std::int64_t>& documents, std::int64_t vocabulary,
                  std::uint64_t stream);
LocalRow cut(const WholeRow&, const Grid&, int per_member, const std::vector<std::int64_t>& windows);

/// Widths that no tile or vector length divides; layers full, windowed, full.
ModelConfig tiny_config();

/// Adapters on some of every kind of projection; the scale is no power of two.
LoraConfig tiny_lora();

/// Writes elements [from, from + to.size()) of a parameter's full shape.
using FillWeights = std::function<void(const Parameter&, std::int64_t from, const Tensor& to)>;
/// Norms near one and biases near zero, but neither at them; all else normal.
void random_weights(const Parameter&, std::int64_t from, const Tensor& to);

struct RigOptions {
  ModelConfig config = tiny_config();
  ModelOptions model;
  int context = 1;
  int ulysses = 1;
  int per_member = 1;
  std::int64_t groups = 1;  // attention_groups
  int expert = 1;
  FillWeights weights = random_weights;
};

using Gradients = std::map<std::string, std::vector<float>>;

class Rig {
 public:
  /// Collective over `world`, a host face. Weights are random in f32, or left as they are on a backend
  /// without memory. With a layout the arena is planned.
  Rig(Backend&, std::unique_ptr<Comm> world, RigOptions, std::optional<Layout> = {});

  /// One micro-step over one row; `scale` as in Model::train_row. Sums over the ranks of the row.
  RowTotals train(const WholeRow&, double scale, double aux_scale = 0);
  RowTotals train(const LocalRow&, double scale, double aux_scale = 0);
  RowTotals eval(const WholeRow&);
  /// Full gradients of what is trained, by name: the sum since the last zero_gradients().
  Gradients gradients();
  void zero_gradients() { state_->zero_gradients(); }

  Model& model() { return *model_; }
  Arena& arena() { return arena_; }
  ShardedState& state() { return *state_; }
  const Grid& grid() const { return grid_; }

 private:
  RowTotals over_context(RowTotals);

  Backend& backend_;
  RigOptions options_;
  std::unique_ptr<Comm> world_, context_;  // host faces
  Grid grid_;
  std::unique_ptr<Comm> shard_, replica_, ring_, ulysses_, row_, expert_, holders_, copies_;  // tensor faces
  Arena arena_;
  std::unique_ptr<ShardedState> state_;
  std::unique_ptr<ContextAttention> attention_;
  std::unique_ptr<Model> model_;
};

/// A row of odd length: documents of awkward lengths with padding at the end. The window of tiny_config()
/// lies inside the longer ones.
inline const std::vector<std::int64_t> kTinyDocuments{19, 1, 23, 2};
inline constexpr std::int64_t kTinySequence = 47;
inline constexpr double kTinyScale = 1.0 / 80, kTinyAux = 0.03 / 90;

/// What two such rows give, the second of which finds the first one's buffers.
struct Outcome {
  RowTotals totals;  // summed; of the load the largest
  Gradients gradients;
};
Outcome train_two_rows(Backend&, std::unique_ptr<Comm> world, const RigOptions&, std::optional<Layout> = {});
/// Alone, on a CPU backend of its own.
Outcome train_two_rows(const RigOptions&, std::optional<Layout> = {});
/// What a pass on the dry backend says, over another row.
Layout plan_of_rows(const RigOptions&, int ranks);

/// To the last bit.
bool same(const RowTotals&, const RowTotals&);
/// The largest over the leaves of |got - want| / max(|want|, 1e-3 of the whole gradient's norm).
double worst_leaf(const Gradients& got, const Gradients& want);

}  // namespace annulus::test
