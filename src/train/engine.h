// One rank's machine for a run: groups, state and model on a backend, in an arena. The same code counts
// memory on the dry backend and trains on a real one.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include "config/model_config.h"
#include "config/run_config.h"
#include "core/arena.h"
#include "model/model.h"
#include "ops/backend.h"
#include "parallel/grid.h"
#include "parallel/sharded_state.h"
#include "parallel/ulysses.h"
#include "train/optimizer.h"

namespace annulus {

/// Where this process stands on its host.
struct Node {
  std::string host;
  int index = 0;  // number of the host among the job's
  int local_rank = 0, local_size = 1;
  std::atomic<std::int64_t>* step = nullptr;  // where others may read the step under way
};

/// What an engine is made from; the same on every rank but for the grid's indices.
struct EngineSpec {
  ModelConfig model;
  RunConfig run;
  Grid grid;
  ModelOptions options;
  StateOptions state;
  int per_member = 1;          // chunks per ring member, of the row map
  bool frozen = false;         // weights alone: no gradients, no moments (evaluation)
  double aux_coefficient = 0;  // of the load balancing loss
  bool probe = false;          // a layer's attention will be looked at (Engine::probe)
};

/// The grid that the configuration asks for.
inline Grid make_grid(int rank, int world, const ParallelSection& p) {
  return make_grid(rank, world, static_cast<int>(p.context), static_cast<int>(p.ulysses),
                   static_cast<int>(p.expert));
}

/// Settles what the config leaves open (tiles, keep_attention, types) for this model and grid.
EngineSpec make_spec(const ModelConfig&, const RunConfig&, const Grid&, DType compute);

/// The tensor groups of a run, cut from the host group of all ranks. Collective.
Groups make_groups(Backend&, const Comm& world, const Grid&, const Node&, const std::string& shard);
/// What pretended groups count, and how fast their links are.
struct Pretence {
  Traffic* traffic = nullptr;  // outlives the groups
  Links links;
};
/// The same sizes and places with pretended peers.
Groups make_loopback_groups(Backend&, const Grid&, const Node&, const std::string& shard,
                            const Pretence& = {});

/// What an update says.
struct UpdateResult {
  double norm = 0;    // of the whole gradient, before clipping
  double factor = 1;  // what clipping multiplied it by
};

class Engine {
 public:
  Engine(Backend&, Groups, std::unique_ptr<Arena>, const EngineSpec&, std::function<void()> at_layer);
  ~Engine();
  Engine(const Engine&) = delete;

  /// To be called once the masters hold their first values (random, or from a file).
  void masters_filled() { optimizer_.masters_filled(); }
  /// Forward, loss and backward of one row; see Model::train_row.
  RowTotals micro(const LocalRow&, double scale, double aux_scale = 0);
  /// A micro-step through the last layer alone, whose attention is shown; for an engine whose spec says so.
  void probe(const LocalRow&, double scale, const AttentionProbe&);
  /// Forward and loss alone.
  RowTotals eval(const LocalRow&);
  /// Of each local token of the row that ran last, 0 where it has no target. Until the next row.
  std::span<const float> nll() const { return model_.nll(); }
  /// Ends a sum over micro-steps: the gradient is whole, its norm known (f64, each element once).
  double finish_gradients();
  /// Clips, steps AdamW (step counts from 1) and zeroes the gradients. A gradient that is not finite is not
  /// applied: weights and moments stay as they are.
  UpdateResult update(double lr, std::int64_t step);

  /// After an exception out of these: temporaries and gathered weights are forgotten. Weights and moments are
  /// whole and can be saved; gradients are not.
  void abandon();

  std::int64_t host_bytes() const {  // pinned, once rows have run
    return model_.host_bytes() + state_.host_bytes();
  }
  ShardedState& state() { return state_; }
  Arena& arena() { return *arena_; }
  Backend& backend() { return backend_; }
  const EngineSpec& spec() const { return spec_; }
  /// Waits for all lanes.
  void settle();

 private:
  Backend& backend_;
  Groups groups_;
  std::unique_ptr<Arena> arena_;
  EngineSpec spec_;
  ShardedState state_;
  Optimizer optimizer_;
  ContextAttention attention_;
  Model model_;
};

}  // namespace annulus
