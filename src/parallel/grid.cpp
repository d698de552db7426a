#include "parallel/grid.h"

namespace annulus {

Grid make_grid(int rank, int world, int context, int ulysses, int expert) {
  need(world >= 1 && rank >= 0 && rank < world, "grid: rank outside the world");
  if (context < 1 || world % context != 0)
    usage_error("parallel.context = " + std::to_string(context) + " does not divide the job's " +
                std::to_string(world) + " ranks: choose a divisor of the number of ranks.");
  if (ulysses < 1 || context % ulysses != 0)
    usage_error("parallel.ulysses = " + std::to_string(ulysses) + " does not divide parallel.context = " +
                std::to_string(context) + ": choose a divisor of it.");
  if (expert < 1 || world % expert != 0)
    usage_error("parallel.expert = " + std::to_string(expert) + " does not divide the job's " +
                std::to_string(world) + " ranks: choose a divisor of the number of ranks.");
  Grid g;
  g.world = world;
  g.rank = rank;
  g.ulysses = ulysses;
  g.ring = context / ulysses;
  g.data = world / context;
  g.ulysses_index = rank % ulysses;
  g.ring_index = rank / ulysses % g.ring;
  g.data_index = rank / context;
  g.expert = expert;
  g.expert_index = rank % expert;
  return g;
}

}  // namespace annulus
