#include "ops/cpu/queue.h"
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include "ops/check.h"

namespace annulus {
namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t now() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count());
}

std::size_t index(Lane lane) {
  return static_cast<std::size_t>(lane);
}

}  // namespace

Mark CpuQueue::mark(Lane lane) {
  std::uint64_t& until = busy_until_[index(lane)];
  if (until != 0 && until <= now()) until = 0;
  return {until};
}

void CpuQueue::wait(Lane lane, Mark mark) {
  if (mark.id == 0) return;
  if (lane == Lane::compute) return sync(mark);  // the host is what computes
  busy_until_[index(lane)] = std::max(busy_until_[index(lane)], mark.id);
}

void CpuQueue::sync(Mark mark) {
  if (mark.id != 0) std::this_thread::sleep_until(Clock::time_point(std::chrono::nanoseconds(mark.id)));
}

void CpuQueue::begin_transfer(Lane lane) {
  begun_[index(lane)] = std::max(now(), busy_until_[index(lane)]);
}

void CpuQueue::end_transfer(Lane lane, double seconds) {
  const auto long_enough = begun_[index(lane)] + static_cast<std::uint64_t>(seconds * 1e9);
  busy_until_[index(lane)] = std::max(now(), long_enough);
  if (lane == Lane::compute) sync({busy_until_[index(lane)]});
}

void CpuQueue::copy(Lane, const Tensor& from, const Tensor& to) {
  check_copy(from, to);
  const auto* source = static_cast<const char*>(from.data);
  auto* target = static_cast<char*>(to.data);
  if (source == target || from.size() == 0) return;
  if (from.contiguous() && to.contiguous()) {
    std::memmove(target, source, static_cast<std::size_t>(from.bytes()));
    return;
  }
  const std::int64_t row = from.row_size() * bytes_of(from.dtype);
  const std::int64_t read = from.stride() * bytes_of(from.dtype), write = to.stride() * bytes_of(to.dtype);
  for (std::int64_t i = 0; i < from.shape[0]; ++i)
    std::memcpy(target + i * write, source + i * read, static_cast<std::size_t>(row));
}

void CpuQueue::zero(Lane, const Tensor& t) {
  auto* data = static_cast<char*>(t.data);
  const std::int64_t row = t.row_size() * bytes_of(t.dtype), step = t.stride() * bytes_of(t.dtype);
  if (row == 0) return;
  for (std::int64_t i = 0; i < t.shape[0]; ++i)
    std::memset(data + i * step, 0, static_cast<std::size_t>(row));
}

Stamp CpuQueue::stamp(Lane) {
  return {now()};
}

}  // namespace annulus
