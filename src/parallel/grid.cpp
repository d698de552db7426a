#include "parallel/grid.h"

namespace annulus {

Grid make_grid(int rank, int world, int context, int ulysses) {
  need(world >= 1 && rank >= 0 && rank < world, "grid: rank outside the world");
  if (context < 1 || world % context != 0)
    usage_error("parallel.context = " + std::to_string(context) + " does not divide the job's " +
                std::to_string(world) + " ranks: choose a divisor of the number of ranks.");
  if (ulysses < 1 || context % ulysses != 0)
    usage_error("parallel.ulysses = " + std::to_string(ulysses) + " does not divide parallel.context = " +
                std::to_string(context) + ": choose a divisor of it.");
  Grid g;
  g.world = world;
  g.rank = rank;
  g.ulysses = ulysses;
  g.ring = context / ulysses;
  g.data = world / context;
  g.ulysses_index = rank % ulysses;
  g.ring_index = rank / ulysses % g.ring;
  g.data_index = rank / context;
  return g;
}

}  // namespace annulus
