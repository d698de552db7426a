#include "ops/dry/dry_queue.h"
#include <algorithm>
#include <cmath>
#include <utility>
#include "ops/check.h"

namespace annulus {
namespace {

constexpr double kGiga = 1e9, kMicro = 1e-6, kTicks = 1e12;  // marks count picoseconds
constexpr std::uint64_t kLaneBits = 3;

double time_of(std::uint64_t id) {
  return static_cast<double>(id >> kLaneBits) / kTicks;
}

std::size_t lane_of(Mark mark) {
  return mark.id & ((std::uint64_t{1} << kLaneBits) - 1);
}

std::uint64_t point(double seconds, Lane lane) {
  return static_cast<std::uint64_t>(std::llround(seconds * kTicks)) << kLaneBits |
         static_cast<std::uint64_t>(lane);
}

}  // namespace

Mark DryQueue::mark(Lane lane) {
  return {point(clock(lane), lane)};
}

void DryQueue::wait(Lane lane, Mark mark) {
  const double gap = time_of(mark.id) - clock(lane);
  if (gap <= 0) return;
  clock(lane) += gap;
  if (lane == Lane::compute) times_.waited_for[lane_of(mark)] += gap;
}

void DryQueue::sync(Mark mark) {
  host_ = std::max(host_, time_of(mark.id));
}

void DryQueue::run(Lane lane, const char* kind, double seconds, double flops, double bytes) {
  const double n = static_cast<double>(repeats_);
  Spent& spent = times_.kinds[kind];
  spent.calls += repeats_;
  spent.flops += n * flops;
  spent.bytes += n * bytes;
  if (rates_ == nullptr) return;
  const double start = std::max(clock(lane), host_);
  if (lane == Lane::compute)
    times_.waited_for[static_cast<std::size_t>(Lane::compute)] += start - clock(lane);
  clock(lane) = start + n * seconds;
  host_ += n * rates_->number("launch_us") * kMicro;
  times_.busy[static_cast<std::size_t>(lane)] += n * seconds;
  spent.seconds += n * seconds;
}

void DryQueue::spend(Lane lane, const Cost& c) {
  run(lane, c.kind, rates_ == nullptr ? 0 : rates_->seconds(c), c.flops, c.bytes);
}

void DryQueue::spend(Lane lane, const std::vector<Cost>& parts) {
  if (parts.empty()) return;
  double seconds = 0, flops = 0, bytes = 0;
  for (const Cost& c : parts) {
    if (rates_ != nullptr) seconds += rates_->seconds(c);
    flops += c.flops;
    bytes += c.bytes;
  }
  run(lane, parts.front().kind, seconds, flops, bytes);
}

double DryQueue::pinned_rate(Lane lane, Lane other) {
  const bool both = clock(other) > std::max(clock(lane), host_);
  return rates_->number(both ? "pinned_both_gbs" : "pinned_gbs") * kGiga;
}

void DryQueue::copy(Lane lane, const Tensor& from, const Tensor& to) {
  check_copy(from, to);
  if (transferring_[static_cast<std::size_t>(lane)]) return;  // a part of the transfer
  const double bytes = static_cast<double>(from.bytes());
  const bool out = from.place == Place::device && to.place == Place::host;
  const bool in = from.place == Place::host && to.place == Place::device;
  double seconds = 0;
  if (rates_ != nullptr && (out || in))
    seconds = bytes / pinned_rate(lane, lane == Lane::out ? Lane::in : Lane::out);
  else if (rates_ != nullptr)
    seconds = 2 * bytes / (rates_->number("copy_gbs") * kGiga);
  run(lane,
      out  ? "copies to the host"
      : in ? "copies from the host"
           : "copies",
      seconds, 0, out || in ? bytes : 2 * bytes);
}

void DryQueue::zero(Lane lane, const Tensor& t) {
  if (transferring_[static_cast<std::size_t>(lane)]) return;
  const double bytes = static_cast<double>(t.bytes());
  run(lane, "zeros", rates_ == nullptr ? 0 : bytes / (rates_->number("copy_gbs") * kGiga), 0, bytes);
}

void DryQueue::begin_transfer(Lane lane) {
  transferring_[static_cast<std::size_t>(lane)] = true;
}

void DryQueue::end_transfer(Lane lane, double seconds) {
  transferring_[static_cast<std::size_t>(lane)] = false;
  run(lane, "transfers", seconds, 0, 0);
}

bool DryQueue::repeat(std::int64_t times) {
  repeats_ = times;
  return true;
}

Stamp DryQueue::stamp(Lane lane) {
  return {point(clock(lane), lane)};
}

double DryQueue::seconds(Stamp from, Stamp to) {
  return time_of(to.id) - time_of(from.id);
}

DryTimes DryQueue::take() {
  host_ = std::max(host_, *std::max_element(clocks_.begin(), clocks_.end()));
  clocks_.fill(host_);
  times_.seconds = host_ - taken_;
  taken_ = host_;
  return std::exchange(times_, {});
}

}  // namespace annulus
