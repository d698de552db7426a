// AdamW over a rank's shards, wherever they lie.
#pragma once
#include <array>
#include <functional>
#include <vector>
#include "config/run_config.h"
#include "core/arena.h"
#include "ops/backend.h"
#include "parallel/sharded_state.h"

namespace annulus {

/// State in pinned memory passes through the device in slices, in two slots: while one slice is worked on,
/// the one before leaves (Lane::out), and then the next comes (Lane::in), so that the link to the host is
/// used both ways. Lives within one phase of the arena.
class StateStream {
 public:
  using Field = Tensor UnitState::*;
  /// `fields`: what passes; nothing: all lies where the device works on it.
  StateStream(Backend&, Arena&, ShardedState&, std::vector<Field> fields);

  /// Calls `work` for a unit's state in parts, each with its own tensors and segments; what it queues on the
  /// compute lane is waited for before the fields go back (`back`: they were written).
  void each(const UnitState&, bool back, const std::function<void(const UnitState&)>& work);
  /// All slices have gone back; the slots are given back.
  void finish();

 private:
  struct Slot {
    std::vector<Tensor> fields;
    Mark free;
  };
  Queue& queue_;
  Arena& arena_;
  std::vector<Field> fields_;
  std::int64_t slice_ = 0;
  std::array<Slot, 2> slots_;
  std::size_t turn_ = 0;
};

class Optimizer {
 public:
  Optimizer(Backend&, Arena&, ShardedState&, const OptimizerSection&, std::int64_t seed);

  /// One step (numbered from 1) with the gradients times `factor`, in the phase in which they were finished.
  void update(double lr, double factor, std::int64_t step);
  /// Masters were written: the weights that are kept beside them follow. In a phase of its own.
  void masters_filled();

 private:
  Backend& backend_;
  Arena& arena_;
  ShardedState& state_;
  OptimizerSection section_;
  std::int64_t seed_;
};

}  // namespace annulus
