// Lanes and marks: how work overlaps, on every backend alike.
#pragma once
#include <cstdint>
#include "core/tensor.h"

namespace annulus {

/// Where a piece of work is queued. Work on one lane runs in order; lanes run side by side.
enum class Lane : std::uint8_t { compute, ring, gather, reduce, dispatch, out, in };
inline constexpr int kLanes = 7;

/// A point on a lane. The default mark is a point that has passed.
struct Mark {
  std::uint64_t id = 0;
};

/// A point on a lane whose time can be read; for measuring.
struct Stamp {
  std::uint64_t id = 0;
};

/// One per backend; Ops and Comm share it. cuda: streams and events; cpu: everything has happened when the
/// call returns; dry: nothing happens. Called from one host thread.
class Queue {
 public:
  virtual ~Queue() = default;
  virtual Mark mark(Lane) = 0;        // after all that is queued so far on that lane
  virtual void wait(Lane, Mark) = 0;  // the lane waits, the host does not
  virtual void sync(Mark) = 0;        // the host waits; throws what went wrong on the device until then
  /// Copies between any two places. Same dtype and shape; rows may be strided. Host memory that a device
  /// copies from or to is pinned (it comes from the Backend's `pinned` memory).
  virtual void copy(Lane, const Tensor& from, const Tensor& to) = 0;
  virtual void zero(Lane, const Tensor&) = 0;  // rows may be strided

  /// Time between two points, once both have passed. A backend without a clock says 0.
  virtual Stamp stamp(Lane) { return {}; }
  virtual double seconds(Stamp /*from*/, Stamp /*to*/) { return 0; }
  virtual void forget_stamps() {}  // those given so far are not asked for any more

  /// Every lane waits for what is queued on every other: the edge between two phases of a step.
  void fence() {
    for (int l = 1; l < kLanes; ++l) wait(Lane::compute, mark(static_cast<Lane>(l)));
    const Mark all = mark(Lane::compute);
    for (int l = 1; l < kLanes; ++l) wait(static_cast<Lane>(l), all);
  }
};

}  // namespace annulus
