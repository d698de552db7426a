#include "measure.h"
#include <algorithm>
#include <cmath>
#include <numeric>

namespace annulus::bench {
namespace {

constexpr int kFirstBatch = 3, kLargestBatch = 64;
constexpr std::int64_t kSample = 4096;  // elements, at the beginning, in the middle and at the end

double quantile(const std::vector<double>& sorted, double p) {
  const double at = p * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return std::lerp(sorted[low], sorted[high], at - static_cast<double>(low));
}

void call(const Work& work) {
  if (work.before) work.before();
  work.run();
}

std::vector<double> batch(Queue& queue, const Work& work, int calls) {
  std::vector<std::pair<Stamp, Stamp>> stamps;
  call(work);
  for (int i = 0; i < calls; ++i) {
    if (work.before) work.before();
    const Stamp from = queue.stamp(work.lane);
    work.run();
    stamps.emplace_back(from, queue.stamp(work.lane));
  }
  queue.sync(queue.mark(work.lane));
  std::vector<double> seconds;
  for (const auto& [from, to] : stamps) seconds.push_back(queue.seconds(from, to));
  queue.forget_stamps();
  return seconds;
}

}  // namespace

Timing measure(Backend& backend, const Work& work, const Effort& effort) {
  Queue& queue = backend.queue();
  queue.fence();
  for (int i = 0; i < effort.warm_up; ++i) call(work);
  std::vector<double> times;
  double total = 0;
  int next = kFirstBatch;
  const auto enough = [&] {
    const bool often = static_cast<int>(times.size()) >= effort.calls;
    return total >= effort.seconds && (often || total >= effort.patience * effort.seconds);
  };
  while (!enough()) {
    const std::vector<double> more = batch(queue, work, next);
    total = std::accumulate(more.begin(), more.end(), total);
    times.insert(times.end(), more.begin(), more.end());
    const auto count = static_cast<double>(times.size());
    const double missing = std::max(effort.calls - count, (effort.seconds - total) * count / total);
    next = static_cast<int>(std::clamp(std::ceil(missing), 1.0, double{kLargestBatch}));
    if (total >= effort.seconds)
      next = std::min(next, kFirstBatch);  // slow ones look at the clock more often
  }
  std::sort(times.begin(), times.end());
  return {quantile(times, 0.5), quantile(times, 0.1), quantile(times, 0.9), times.size()};
}

std::string fault_of(Pool& pool, const std::vector<Tensor>& outputs) {
  for (const Tensor& t : outputs) {
    const std::int64_t count = std::min(kSample, t.size());
    bool written = false;
    for (const std::int64_t at : {std::int64_t{0}, (t.size() - count) / 2, t.size() - count}) {
      for (const float value : pool.download(t, at, count)) {
        if (!std::isfinite(value)) return std::string(t.name) + " is not finite";
        written = written || value != 0;
      }
    }
    if (!written) return std::string(t.name) + " is zero everywhere";
  }
  return {};
}

}  // namespace annulus::bench
