// Where a rank stands: rank = (data_index * ring + ring_index) * ulysses + ulysses_index.
#pragma once
#include <memory>
#include "comm/comm.h"

namespace annulus {

struct Grid {
  int world = 1, rank = 0;
  int data = 1, data_index = 0;        // groups that work on different rows
  int ring = 1, ring_index = 0;        // members that hold different chunks of one row
  int ulysses = 1, ulysses_index = 0;  // members of one ring place that share its heads
  int expert = 1, expert_index = 0;    // members of a group of consecutive ranks that share the experts
  int context() const { return ring * ulysses; }
};

/// Fails (usage) unless context and expert divide world and ulysses divides context.
Grid make_grid(int rank, int world, int context, int ulysses, int expert = 1);

/// The tensor groups of a run. `shard` owns one whole copy of the state between its members; `replica` joins
/// the ranks that own the same piece of different copies (size 1 when shard=world). `expert` shares a layer's
/// experts; expert_shard and expert_replica are what shard and replica are, among the ranks of one
/// expert_index; null where all ranks hold all experts, so that shard and replica are these too.
struct Groups {
  std::unique_ptr<Comm> world, context, ring, ulysses, shard, replica;
  std::unique_ptr<Comm> expert, expert_shard, expert_replica;
};

}  // namespace annulus
