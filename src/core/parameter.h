// Parameters and units: what the model's weights are called, and how a layer's lie in one flat vector.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace annulus {

struct Parameter {
  std::string name;                 // as transformers 5 names it in memory
  std::vector<std::int64_t> shape;  // full shape, row-major
  bool decay = true;                // weight decay applies (matrices yes; norms and biases no)
  bool trained = true;
  std::uint64_t id = 0;    // its number in the model: key of the random numbers that belong to it
  float init_std = 0.02f;  // init=random: standard deviation; 0 means all `init_value`
  float init_value = 0.f;
  float init_bound = 0.f;  // where positive: uniform in (-init_bound, init_bound) instead

  std::int64_t size() const {
    std::int64_t n = 1;
    for (std::int64_t d : shape) n *= d;
    return n;
  }
};

/// Parameters that are gathered, used and reduced together (a layer, the embedding, the head): one flat
/// vector, so that one collective moves it. Rank r of R owns elements [r * piece, (r + 1) * piece).
struct Unit {
  static constexpr std::int64_t kAlign = 64;  // elements between groups; pieces are multiples of it too

  std::string name;
  std::vector<Parameter> parameters;
  std::vector<std::int64_t> offsets;  // first element of each parameter in the flat vector
  std::int64_t size = 0;              // elements, gaps included

  /// `joined`: follows the one before without a gap, so that both can be read as one matrix (q|k|v, gate|up).
  void add(Parameter p, bool joined = false) {
    if (!joined) size = (size + kAlign - 1) / kAlign * kAlign;
    offsets.push_back(size);
    size += p.size();
    parameters.push_back(std::move(p));
  }
  std::int64_t piece(int ranks) const {
    const std::int64_t n = (size + ranks - 1) / ranks;
    return (n + kAlign - 1) / kAlign * kAlign;
  }
};

/// A unit is trained as a whole or frozen as a whole.
inline bool is_trained(const Unit& unit) {
  for (const Parameter& p : unit.parameters)
    if (p.trained) return true;
  return false;
}

/// The part of one parameter that lies in a rank's piece of a unit.
struct Segment {
  const Parameter* parameter = nullptr;
  std::int64_t from = 0;  // first element, in the parameter's full shape
  std::int64_t count = 0;
  std::int64_t at = 0;  // its place in the piece
};

/// Segments of rank `rank` of `ranks`, in order. Gaps belong to nobody and hold zeros.
std::vector<Segment> segments_of(const Unit&, int rank, int ranks);

}  // namespace annulus
