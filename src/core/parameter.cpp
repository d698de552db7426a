#include "core/parameter.h"
#include <algorithm>
#include "core/check.h"

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

Unit part_of(const Unit& experts, int parts) {
  Unit part;
  part.name = experts.name;
  part.owners = experts.owners;
  for (Parameter p : experts.parameters) {
    need(parts >= 1 && !p.shape.empty() && p.shape[0] % parts == 0,
         p.name + ": its experts cannot be shared by so many ranks");
    p.shape[0] /= parts;
    part.add(std::move(p));
  }
  return part;
}

std::vector<Segment> segments_of_part(const Unit& experts, int part, int parts, int rank, int ranks) {
  const Unit mine = part_of(experts, parts);
  std::vector<Segment> segments = segments_of(mine, rank, ranks);
  for (Segment& s : segments) {
    const auto i = static_cast<std::size_t>(s.parameter - mine.parameters.data());
    s.parameter = &experts.parameters[i];
    s.from += part * mine.parameters[i].size();
  }
  return segments;
}

}  // namespace annulus
