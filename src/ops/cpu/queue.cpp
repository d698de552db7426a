#include "ops/cpu/queue.h"
#include <chrono>
#include <cstring>
#include "ops/check.h"

namespace annulus {

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
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return {static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count())};
}

}  // namespace annulus
