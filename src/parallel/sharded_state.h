// Weights, gradients and optimizer state, cut over the ranks of the shard group; units are gathered one ahead
// of use and dropped after it, gradients are summed and scattered behind the next unit's backward.
#pragma once
#include <memory>
#include <string>
#include <vector>
#include "core/arena.h"
#include "core/parameter.h"
#include "ops/backend.h"

namespace annulus {

struct StateOptions {
  DType compute = DType::f32;    // T: type of gathered weights
  DType state = DType::f32;      // masters and both moments
  DType gradients = DType::f32;  // how the shard's sum is stored
  /// Moments, and masters that are not themselves what is gathered, lie in pinned host memory.
  bool offload = false;
  std::int64_t slice = std::int64_t{1} << 24;  // elements of them that pass through the device at a time
};

/// Full tensors of a gathered unit, or of its gradient; null where the whole is. Valid until drop() /
/// reduce().
class UnitView {
 public:
  UnitView(const Unit& unit, Tensor flat) : unit_(&unit), flat_(flat) {}
  /// The parameter by its number in the unit, in its full shape.
  Tensor operator[](int i) const;
  /// `count` joined parameters from `i` as one matrix (rows added up, same columns), or one vector.
  Tensor joined(int i, int count) const;
  Tensor flat() const { return flat_; }

 private:
  const Unit* unit_;
  Tensor flat_;
};

/// How experts are held: part `part` of `parts` of every layer's by the ranks of `shard`, whose copies
/// `replica` joins. `world`: host face of all ranks.
struct ExpertOwners {
  Comm *shard = nullptr, *replica = nullptr, *world = nullptr;
  int part = 0, parts = 1;
};

/// A rank's own pieces of one unit: (piece) elements each.
struct UnitState {
  Tensor master;  // state type (compute type when the unit is frozen)
  Tensor grad;    // gradients type; none when frozen
  Tensor m, v;    // state type; none when frozen
  Tensor weight;  // compute type: where masters are offloaded, what the unit is gathered from; none elsewhere
  std::vector<Segment> segments;
};

class ShardedState {
 public:
  /// Keeps all persistent tensors in `arena`. Moments and gradients start at zero, masters undefined (the
  /// caller fills them: io or random), gaps zero. `experts`: for units that experts own, where there are any.
  ShardedState(Backend&, Arena& arena, std::vector<Unit>, Comm& shard, Comm& replica, StateOptions,
               ExpertOwners experts = {});
  ~ShardedState();
  ShardedState(const ShardedState&) = delete;
  ShardedState& operator=(const ShardedState&) = delete;

  /// In their full shapes.
  const std::vector<Unit>& units() const { return units_; }
  UnitState& state(int unit) { return states_[static_cast<std::size_t>(unit)]; }
  Comm& shard(int unit) const { return is_experts(unit) ? *experts_.shard : shard_; }
  Comm& replica(int unit) const { return is_experts(unit) ? *experts_.replica : replica_; }
  const StateOptions& options() const { return options_; }
  /// Masters lie on the host, and weights beside them on the device: who writes masters makes the weights
  /// too.
  bool offloads_masters() const { return options_.offload && options_.state != options_.compute; }
  std::int64_t host_bytes() const { return host_.peak_bytes(); }  // pinned

  /// Starts gathering a unit on Lane::gather (nothing when it is under way). Every rank calls it in the same
  /// order. A group of one whose state is in the compute type gathers nothing: its view is the state itself.
  /// Masters are written in another phase of the arena than the one that gathers them.
  void prefetch(int unit);
  /// The gathered unit; the compute lane waits for it. Prefetches when nobody has.
  UnitView use(int unit);
  /// The compute lane has passed its last use.
  void drop(int unit);
  /// Units that were gathered ahead for layers that are left out.
  void drop_unused();

  bool trains(int unit) const { return static_cast<bool>(states_[static_cast<std::size_t>(unit)].grad); }

  /// A zeroed f32 gradient of the whole unit, to be added to on the compute lane. Where the group has one
  /// member and gradients are f32 it is the shard's own sum, and nothing is zeroed. Of a frozen unit: all
  /// tensors null, and there is nothing to reduce.
  UnitView open_gradient(int unit);
  /// Starts to sum it over the shard group (Lane::reduce) and to add this rank's piece to its shard's sum.
  /// Its memory stays taken until release_reduced(), so that what is computed behind the sum does not wait
  /// for it.
  void reduce(int unit);
  /// Gives back the memory of the gradients whose sums are under way. The next reduce() does so too.
  void release_reduced();

  /// After the last micro-step, in a phase of its own: shard sums are added up over the replica group (a
  /// group of one adds nothing). From here on the compute lane may read them.
  void finish_gradients();
  void zero_gradients();
  /// Sum of squares of all finished gradients, each element once over the whole world (f64). Synchronous.
  double gradient_square_sum();

  /// After an exception in the middle of a phase, before the arena's own abandon(): nothing is gathered or
  /// open.
  void abandon();

 private:
  /// A whole unit that is alive: gathered weights, or a gradient.
  struct Open {
    bool live = false;
    Tensor flat;
    Mark ready;
  };
  bool is_experts(int unit) const { return units_[static_cast<std::size_t>(unit)].owners == Owners::experts; }
  const Tensor& gathered_from(int unit);
  bool gathers(int unit);         // false: the state itself is the gathered unit
  bool scatters(int unit) const;  // false: the shard's sum is the unit's gradient
  Tensor own_piece(int unit, const Tensor& whole) const;
  void sum_over_replicas(int unit);
  double square_sum(Owners);

  Backend& backend_;
  Arena& arena_;
  Arena host_;
  std::vector<Unit> units_;
  std::vector<Unit> held_;  // what a gathered unit of this rank holds: of experts its part
  Comm& shard_;
  Comm& replica_;
  ExpertOwners experts_;
  StateOptions options_;
  std::vector<UnitState> states_;
  std::vector<Open> gathered_, gradients_;
  std::vector<Tensor> reducing_;   // whole gradients that Lane::reduce still reads
  Tensor square_sum_, read_back_;  // (1) f64, where the backend computes and in pinned memory
};

}  // namespace annulus
