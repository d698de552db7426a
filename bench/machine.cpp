#include "machine.h"

namespace annulus::bench {
namespace {

constexpr std::int64_t kMillion = 1000000;

std::string megabytes(std::int64_t bytes) {
  return std::to_string(bytes / kMillion) + " MB";
}

/// Twice: the first time is the warm-up, so that clocks have settled.
Timing sustained(Backend& backend, Pool& pool, const Work& work, const char* name, double seconds) {
  measure(backend, work, {.warm_up = 1, .seconds = seconds / 4, .calls = 3});
  const Timing timing = measure(backend, work, {.warm_up = 0, .seconds = seconds, .calls = 5});
  const std::string fault = fault_of(pool, work.outputs);
  if (!fault.empty()) fail(std::string("the limit ") + name, fault);
  return timing;
}

Limit copies(Backend& b, Pool& p, const char* name, const Tensor& from, const Tensor& to, Lane lane,
             double passes, double seconds) {
  b.queue().fence();
  const Work work{.run = [&] { b.queue().copy(lane, from, to); }, .outputs = {to}, .lane = lane};
  Limit limit{name, megabytes(from.bytes()), passes * static_cast<double>(from.bytes()),
              sustained(b, p, work, name, seconds)};
  return limit;
}

}  // namespace

Limits measure_limits(Backend& b, Pool& p, bool small, double seconds) {
  Limits limits{};
  const std::int64_t elements = (small ? 64 : 4000) * kMillion / 2, side = small ? 1024 : 8192;
  {
    const Tensor from = p.normal("from", DType::bf16, {elements});
    const Tensor to = p.empty("to", DType::bf16, {elements});
    limits.copy = copies(b, p, "copy, read and written", from, to, Lane::compute, 2, seconds);
    p.clear();
  }
  {
    const Matmul a{.a = p.normal("a", DType::bf16, {side, side}),
                   .b = p.normal("b", DType::bf16, {side, side}),
                   .c = p.empty("c", DType::bf16, {side, side}),
                   .trans_b = true};
    const Work work{[&] { b.ops().matmul(Lane::compute, a); }, {a.c}};
    const auto n = static_cast<double>(side);
    limits.matmul = {"matmul, bf16", std::to_string(side) + "^3", 2 * n * n * n,
                     sustained(b, p, work, "matmul", seconds)};
    p.clear();
  }
  const Tensor device = p.normal("device", DType::bf16, {elements / 4});
  const Tensor host = p.pinned("host", DType::bf16, {elements / 4});
  limits.to_host = copies(b, p, "copy, device to pinned", device, host, Lane::out, 1, seconds / 2);
  limits.to_device = copies(b, p, "copy, pinned to device", host, device, Lane::in, 1, seconds / 2);
  {
    const Tensor other = p.normal("other", DType::bf16, {elements / 4});
    const Tensor landing = p.pinned("landing", DType::bf16, {elements / 4});
    b.queue().fence();
    const Work work{.run =
                        [&] {
                          b.queue().copy(Lane::out, other, landing);
                          b.queue().copy(Lane::in, host, device);
                        },
                    .outputs = {device},
                    .lane = Lane::in};
    limits.both = {"copies both ways, each", megabytes(device.bytes()), static_cast<double>(device.bytes()),
                   sustained(b, p, work, "copies both ways", seconds / 2)};
  }
  b.queue().fence();
  p.clear();
  return limits;
}

}  // namespace annulus::bench
