#pragma once
#include <array>
#include "core/queue.h"

namespace annulus {

/// Everything has happened when a call returns, so every mark has passed; but for transfers that are to take
/// their time: their lane is busy until then, and whoever waits for its mark sleeps as long. A mark is the
/// time of its point, in nanoseconds; 0 when it has passed.
class CpuQueue : public Queue {
 public:
  Mark mark(Lane) override;
  void wait(Lane, Mark) override;
  void sync(Mark) override;
  void copy(Lane, const Tensor& from, const Tensor& to) override;
  void zero(Lane, const Tensor&) override;
  void begin_transfer(Lane) override;
  void end_transfer(Lane, double seconds) override;
  Stamp stamp(Lane) override;  // nanoseconds
  double seconds(Stamp from, Stamp to) override { return static_cast<double>(to.id - from.id) * 1e-9; }

 private:
  std::array<std::uint64_t, kLanes> begun_{}, busy_until_{};  // busy_until_: 0: nothing is under way
};

}  // namespace annulus
