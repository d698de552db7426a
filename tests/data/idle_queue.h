// For groups of which only the host face is used.
#pragma once
#include "core/queue.h"

namespace annulus::test {

class IdleQueue : public Queue {
 public:
  Mark mark(Lane) override { return {}; }
  void wait(Lane, Mark) override {}
  void sync(Mark) override {}
  void copy(Lane, const Tensor&, const Tensor&) override { fail("idle queue", "a test copies"); }
  void zero(Lane, const Tensor&) override { fail("idle queue", "a test zeroes"); }
};

}  // namespace annulus::test
