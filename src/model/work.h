// What every part of the model works with, and the one row it works on.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <vector>
#include "core/arena.h"
#include "model/model.h"
#include "model/router_statistics.h"
#include "ops/backend.h"
#include "parallel/activation_store.h"
#include "parallel/expert_travel.h"
#include "parallel/row_map.h"
#include "parallel/sharded_state.h"
#include "parallel/ulysses.h"

namespace annulus {

struct Work {
  Backend& backend;
  Queue& queue;
  Ops& ops;
  Arena& arena;
  ShardedState& state;
  ContextAttention& attention;
  ActivationStore& store;
  const ModelConfig& config;
  const ModelOptions& options;
  Tensor inv_freq;                 // (rotated dims / 2) f64
  double rope_factor = 1.0;        // multiplies cos and sin
  ExpertGroup* experts = nullptr;  // null: no layer has experts
  RouterStatistics* router = nullptr;
  const AttentionProbe* probe = nullptr;  // of the pass under way; null: nobody looks

  /// A temporary in the compute type. Given back by arena.give(), or by the store that takes it over.
  Tensor take(const char* name, std::initializer_list<std::int64_t> shape,
              Region region = Region::workspace) {
    return arena.take(region, name, options.compute, shape);
  }
  Tensor take_f32(const char* name, std::initializer_list<std::int64_t> shape,
                  Region region = Region::workspace) {
    return arena.take(region, name, DType::f32, shape);
  }
  void give(const Tensor& t) { arena.give(t); }
};

/// A row on the device.
struct RowInputs {
  const RowMap* map = nullptr;
  std::int64_t tokens = 0;            // Tl
  Tensor ids, targets;                // (Tl) i32
  Tensor order;                       // (Tl) i32; null where the embedding gets no gradient
  Tensor positions;                   // (Tl) i64
  Tensor valid;                       // (Tl) i32: 0 is padding; null where no layer has experts
  std::vector<std::int64_t> windows;  // the distinct ones
  std::vector<Tensor> first;          // (rows of the ring member) i64, by distinct window

  const Tensor& first_for(std::int64_t window) const {
    for (std::size_t i = 0; i < windows.size(); ++i)
      if (windows[i] == window) return first[i];
    fail("row inputs", "a layer has a window that the model's list lacks");
  }
};

/// Tokens of a tile: what the option says, at most all; 0 means all.
inline std::int64_t tile_of(std::int64_t option, std::int64_t tokens) {
  return option > 0 && option < tokens ? option : tokens;
}

}  // namespace annulus
