#include "core/parameter.h"
#include <algorithm>

namespace annulus {

std::vector<Segment> segments_of(const Unit& unit, int rank, int ranks) {
  const std::int64_t piece = unit.piece(ranks);
  const std::int64_t begin = rank * piece, end = begin + piece;
  std::vector<Segment> out;
  for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
    const std::int64_t first = std::max(begin, unit.offsets[i]);
    const std::int64_t last = std::min(end, unit.offsets[i] + unit.parameters[i].size());
    if (first < last)
      out.push_back({&unit.parameters[i], first - unit.offsets[i], last - first, first - begin});
  }
  return out;
}

}  // namespace annulus
