#include "core/cuda_queue.h"

#include <algorithm>
#include "core/pace.h"
#include "core/read_back.h"

namespace annulus::cuda {
namespace {

constexpr std::size_t kFreshEvents = 256;  // made before the first is looked at for reuse

cudaMemcpyKind direction(Place from, Place to) {
  if (from == Place::host) return to == Place::host ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice;
  return to == Place::host ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice;
}

std::size_t row_bytes(const Tensor& t) {
  return static_cast<std::size_t>(t.row_size() * annulus::bytes_of(t.dtype));
}

/// Bytes from row to row; a contiguous tensor of one row may carry any stride.
std::size_t pitch(const Tensor& t) {
  return t.contiguous() ? row_bytes(t) : static_cast<std::size_t>(t.stride() * annulus::bytes_of(t.dtype));
}

char* row(const Tensor& t, std::int64_t n) {
  return static_cast<char*>(t.data) + static_cast<std::size_t>(n) * pitch(t);
}

bool high_priority(Lane lane) {
  return lane == Lane::ring || lane == Lane::gather || lane == Lane::reduce || lane == Lane::dispatch;
}

}  // namespace

const char* name_of(Lane lane) {
  constexpr const char* names[kLanes] = {"compute", "ring", "gather", "reduce", "dispatch", "out", "in"};
  return names[static_cast<int>(lane)];
}

CudaQueue::CudaQueue() {
  int low = 0, high = 0, device = 0, pitch_limit = 0;
  cu(cudaDeviceGetStreamPriorityRange(&low, &high), "cudaDeviceGetStreamPriorityRange");
  for (int l = 0; l < kLanes; ++l) {
    cudaStream_t stream = nullptr;
    cu(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                    high_priority(static_cast<Lane>(l)) ? high : low),
       "cudaStreamCreateWithPriority");
    streams_[static_cast<std::size_t>(l)] = Stream(stream);
  }
  cu(cudaGetDevice(&device), "cudaGetDevice");
  cu(cudaDeviceGetAttribute(&pitch_limit, cudaDevAttrMaxPitch, device), "cudaDevAttrMaxPitch");
  max_pitch_ = pitch_limit;
}

Event CudaQueue::next_event() {
  if (slots_.size() < kFreshEvents || !has_passed(slots_.front().event.get())) return make_event();
  Event event = std::move(slots_.front().event);
  slots_.pop_front();
  ++first_;
  return event;
}

const CudaQueue::Slot* CudaQueue::slot(Mark mark) const {
  if (mark.id < first_) return nullptr;
  need(mark.id - first_ < slots_.size(), "a mark of another queue");
  return &slots_[mark.id - first_];
}

Mark CudaQueue::mark(Lane lane) {
  Event event = next_event();
  cu(cudaEventRecord(event.get(), stream(lane)), "cudaEventRecord");
  slots_.push_back({std::move(event), lane});
  return {first_ + slots_.size() - 1};
}

void CudaQueue::wait(Lane lane, Mark mark) {
  const Slot* s = slot(mark);
  if (s == nullptr || s->lane == lane) return;  // a lane runs in order
  std::uint64_t& latest = waited_[static_cast<std::size_t>(lane)][static_cast<std::size_t>(s->lane)];
  if (mark.id <= latest) return;
  latest = mark.id;
  cu(cudaStreamWaitEvent(stream(lane), s->event.get(), 0), "cudaStreamWaitEvent");
}

void CudaQueue::sync(Mark mark) {
  const Slot* s = slot(mark);
  if (s == nullptr) return;
  const cudaError_t code = cudaEventSynchronize(s->event.get());
  if (code != cudaSuccess)
    fail(std::string("the device, seen while waiting for lane ") + name_of(s->lane),
         cudaGetErrorString(code));
}

void CudaQueue::copy(Lane lane, const Tensor& from, const Tensor& to) {
  need(from.dtype == to.dtype && from.shape == to.shape,
       std::string("copy from ") + from.name + " to " + to.name + ": shapes or dtypes differ");
  if (from.size() == 0) return;
  const cudaMemcpyKind kind = direction(from.place, to.place);
  const std::size_t width = row_bytes(from), rows = static_cast<std::size_t>(from.shape[0]);
  if (from.contiguous() && to.contiguous()) {
    if (kind == cudaMemcpyDeviceToHost && launch_read_back(to.data, from.data, from.bytes(), stream(lane)))
      return;
    cu(cudaMemcpyAsync(to.data, from.data, width * rows, kind, stream(lane)), "cudaMemcpyAsync");
  } else if (static_cast<std::int64_t>(std::max(pitch(from), pitch(to))) <= max_pitch_) {
    cu(cudaMemcpy2DAsync(to.data, pitch(to), from.data, pitch(from), width, rows, kind, stream(lane)),
       "cudaMemcpy2DAsync");
  } else {  // rows so far apart are few
    for (std::int64_t n = 0; n < from.shape[0]; ++n)
      cu(cudaMemcpyAsync(row(to, n), row(from, n), width, kind, stream(lane)), "cudaMemcpyAsync");
  }
}

void CudaQueue::zero(Lane lane, const Tensor& t) {
  if (t.size() == 0) return;
  const std::size_t width = row_bytes(t), rows = static_cast<std::size_t>(t.shape[0]);
  if (t.contiguous()) {
    cu(cudaMemsetAsync(t.data, 0, width * rows, stream(lane)), "cudaMemsetAsync");
  } else if (static_cast<std::int64_t>(pitch(t)) <= max_pitch_) {
    cu(cudaMemset2DAsync(t.data, pitch(t), 0, width, rows, stream(lane)), "cudaMemset2DAsync");
  } else {
    for (std::int64_t n = 0; n < t.shape[0]; ++n)
      cu(cudaMemsetAsync(row(t, n), 0, width, stream(lane)), "cudaMemsetAsync");
  }
}

std::uint64_t* CudaQueue::begun(Lane lane) {
  if (begun_.data() == nullptr)
    begun_ =
        DeviceBuffer(memory_, kLanes * static_cast<std::int64_t>(sizeof(std::uint64_t)), "transfers' clocks");
  return static_cast<std::uint64_t*>(begun_.data()) + static_cast<int>(lane);
}

void CudaQueue::begin_transfer(Lane lane) {
  launch_note_time(begun(lane), stream(lane));
}

void CudaQueue::end_transfer(Lane lane, double seconds) {
  launch_hold(begun(lane), static_cast<std::uint64_t>(seconds * 1e9), stream(lane));
}

Stamp CudaQueue::stamp(Lane lane) {
  if (stamps_used_ == stamps_.size()) {
    cudaEvent_t event = nullptr;
    cu(cudaEventCreate(&event), "cudaEventCreate");
    stamps_.push_back(Event(event));
  }
  cu(cudaEventRecord(stamps_[stamps_used_].get(), stream(lane)), "cudaEventRecord");
  return {stamps_used_++};
}

double CudaQueue::seconds(Stamp from, Stamp to) {
  float ms = 0;
  cu(cudaEventElapsedTime(&ms, stamps_.at(from.id).get(), stamps_.at(to.id).get()), "cudaEventElapsedTime");
  return static_cast<double>(ms) * 1e-3;
}

}  // namespace annulus::cuda
