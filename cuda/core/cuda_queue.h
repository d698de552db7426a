// The Queue of a CUDA device: a stream a lane, an event a mark.
#pragma once
#include <array>
#include <deque>
#include "core/cuda_memory.h"
#include "core/owned.h"
#include "core/queue.h"

namespace annulus::cuda {

const char* name_of(Lane);

/// Lanes that move data between ranks run at high priority, so that a transfer that is ready starts at once.
/// Marks are numbered from 1. Events are reused, oldest first, once they have passed: a mark older than the
/// oldest event is one that has passed.
class CudaQueue final : public Queue {
 public:
  CudaQueue();  // on the current device

  Mark mark(Lane) override;
  void wait(Lane, Mark) override;
  void sync(Mark) override;
  void copy(Lane, const Tensor& from, const Tensor& to) override;
  void zero(Lane, const Tensor&) override;
  void begin_transfer(Lane) override;
  void end_transfer(Lane, double seconds) override;
  Stamp stamp(Lane) override;
  double seconds(Stamp from, Stamp to) override;
  void forget_stamps() override { stamps_used_ = 0; }

  cudaStream_t stream(Lane lane) const { return streams_[static_cast<std::size_t>(lane)].get(); }

 private:
  struct Slot {
    Event event;
    Lane lane;
  };
  const Slot* slot(Mark) const;  // null: passed
  Event next_event();
  std::uint64_t* begun(Lane);

  std::array<Stream, kLanes> streams_;
  std::deque<Slot> slots_;
  std::uint64_t first_ = 1;  // the mark of slots_.front()
  std::array<std::array<std::uint64_t, kLanes>, kLanes> waited_{};  // by a lane, of another: its latest mark
  std::int64_t max_pitch_ = 0;
  DeviceMemory memory_;
  DeviceBuffer begun_;        // by lane: when its transfer began; made when first needed
  std::deque<Event> stamps_;  // with a clock; the first stamps_used_ are given out
  std::size_t stamps_used_ = 0;
};

}  // namespace annulus::cuda
