#pragma once
#include <array>
#include <map>
#include <string>
#include "core/queue.h"
#include "ops/dry/rates.h"

namespace annulus {

/// What operations or copies of one kind come to.
struct Spent {
  std::int64_t calls = 0;
  double seconds = 0, flops = 0, bytes = 0;
};

/// What has passed on the clocks since they were last read.
struct DryTimes {
  double seconds = 0;                 // until every lane was through
  std::array<double, kLanes> busy{};  // of each lane
  /// The compute lane stood still for a mark of this lane; of its own lane: for the host that queues.
  std::array<double, kLanes> waited_for{};
  std::map<std::string, Spent> kinds;  // operations by Cost::kind; "copies", "copies to host", ...
};

/// Nothing happens; a clock per lane, and one of the host that queues, say when it would have. A lane's work
/// starts when the lane is free and the host has queued it. Without rates every call takes no time. A mark is
/// the time of its point.
class DryQueue final : public Queue {
 public:
  /// `rates`, which outlive the queue, or null.
  explicit DryQueue(const Rates* rates) : rates_(rates) {}

  Mark mark(Lane) override;
  void wait(Lane, Mark) override;
  void sync(Mark) override;
  void copy(Lane, const Tensor& from, const Tensor& to) override;
  void zero(Lane, const Tensor&) override;
  void begin_transfer(Lane) override;
  void end_transfer(Lane, double seconds) override;
  bool repeat(std::int64_t times) override;
  std::int64_t repeats() const override { return repeats_; }
  Stamp stamp(Lane) override;
  double seconds(Stamp from, Stamp to) override;

  /// An operation of this cost, or of these one after the other.
  void spend(Lane, const Cost&);
  void spend(Lane, const std::vector<Cost>&);
  /// Waits for every lane; counts anew from there.
  DryTimes take();

 private:
  double& clock(Lane lane) { return clocks_[static_cast<std::size_t>(lane)]; }
  void run(Lane, const char* kind, double seconds, double flops, double bytes);
  double pinned_rate(Lane, Lane other);

  const Rates* rates_;
  std::array<double, kLanes> clocks_{};
  double host_ = 0, taken_ = 0;
  std::array<bool, kLanes> transferring_{};
  std::int64_t repeats_ = 1;
  DryTimes times_;
};

}  // namespace annulus
