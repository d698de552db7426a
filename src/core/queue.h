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
/// call returns; dry: nothing happens, and a clock per lane says when it would have. Called from one host
/// thread.
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

  /// What is queued on the lane between these two calls takes `seconds` there at least: so pretended
  /// transfers take the time of real ones. Pairs are not nested.
  virtual void begin_transfer(Lane) {}
  virtual void end_transfer(Lane, double /*seconds*/) {}

  /// From here on each call stands for `times` like it: for loops whose turns cost the same, where nothing is
  /// computed. False: this queue makes every call, and does not repeat.
  virtual bool repeat(std::int64_t /*times*/) { return false; }
  virtual std::int64_t repeats() const { return 1; }

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

/// A loop over `count` elements in tiles of `tile`, the last one shorter:
///   for (const Tile t : Tiles(queue, count, tile)) ...
/// A queue that repeats is shown one full tile and the last. Only for loops that run on one lane and take
/// nothing from an arena.
struct Tile {
  std::int64_t at = 0, count = 0;
};

class Tiles {
 public:
  Tiles(Queue& queue, std::int64_t count, std::int64_t tile) : queue_(queue), count_(count), tile_(tile) {}
  ~Tiles() { queue_.repeat(1); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  class Iterator {
   public:
    Iterator(Tiles& of, std::int64_t at) : of_(of), at_(at) { step_ = of_.enter(at_); }
    Tile operator*() const { return {at_, of_.count_ - at_ < of_.tile_ ? of_.count_ - at_ : of_.tile_}; }
    Iterator& operator++() {
      at_ += step_;
      step_ = of_.enter(at_);
      return *this;
    }
    bool operator!=(std::int64_t end) const { return at_ < end; }

   private:
    Tiles& of_;
    std::int64_t at_, step_ = 0;
  };
  Iterator begin() { return {*this, 0}; }
  std::int64_t end() const { return count_; }

 private:
  /// Elements until the next tile that is shown.
  std::int64_t enter(std::int64_t at) {
    const std::int64_t whole = (count_ - at) / tile_;
    if (at < count_ && queue_.repeat(whole > 0 ? whole : 1) && whole > 0) return whole * tile_;
    return tile_;
  }
  Queue& queue_;
  std::int64_t count_, tile_;
};

}  // namespace annulus
