#include "pool.h"
#include <algorithm>
#include <cstring>
#include "core/bf16.h"
#include "core/rng.h"

namespace annulus::bench {
namespace {

constexpr std::int64_t kPeriod = 4194301;  // a prime: no row of a tensor lies in step with it
constexpr std::int64_t kShift = 1000003;   // between the starts of two tensors in the period

void convert(const std::vector<float>& numbers, const Tensor& to, bool square, double scale) {
  const auto value = [&](float x) { return static_cast<float>((square ? double{x} * x : x) * scale); };
  if (to.dtype == DType::f32)
    std::transform(numbers.begin(), numbers.end(), to.as<float>(), value);
  else
    std::transform(numbers.begin(), numbers.end(), to.as<bf16>(), [&](float x) { return narrow(value(x)); });
}

}  // namespace

Pool::Pool(Backend& backend) : backend_(backend) {}

Pool::~Pool() {
  for (const auto* all : {&held_, &kept_})
    for (const Held& h : *all) h.memory->release(h.data);
}

void Pool::clear() {
  backend_.queue().fence();
  backend_.queue().sync(backend_.queue().mark(Lane::compute));
  for (const Held& h : held_) h.memory->release(h.data);
  held_.clear();
  serial_ = 0;
}

Tensor Pool::take(Memory& memory, const char* name, DType dtype, std::initializer_list<std::int64_t> shape,
                  std::vector<Held>& into) {
  Tensor t = make_tensor(name, nullptr, dtype, shape, memory.place());
  t.data = memory.allocate(t.bytes(), name);
  into.push_back({&memory, t.data});
  return t;
}

Tensor Pool::empty(const char* name, DType dtype, std::initializer_list<std::int64_t> shape) {
  return take(backend_.memory(), name, dtype, shape, held_);
}

Tensor Pool::pinned(const char* name, DType dtype, std::initializer_list<std::int64_t> shape) {
  return take(backend_.pinned(), name, dtype, shape, held_);
}

Tensor Pool::normal(const char* name, DType dtype, std::initializer_list<std::int64_t> shape, double scale) {
  return fill(empty(name, dtype, shape), {dtype, Law::normal, scale});
}

Tensor Pool::squares(const char* name, DType dtype, std::initializer_list<std::int64_t> shape) {
  return fill(empty(name, dtype, shape), {dtype, Law::square, 1.0});
}

const Tensor& Pool::pattern(const Key& key) {
  if (const auto found = patterns_.find(key); found != patterns_.end()) return found->second;
  for (auto i = static_cast<std::int64_t>(numbers_.size()); i < kPeriod; ++i)
    numbers_.push_back(static_cast<float>(annulus::normal(0, Draw::test, 0, static_cast<std::uint64_t>(i))));
  const auto [dtype, law, scale] = key;
  std::vector<Held> staging;
  const Tensor host = take(backend_.pinned(), "numbers", dtype, {kPeriod}, staging);
  convert(numbers_, host, law == Law::square, scale);
  const Tensor there = take(backend_.memory(), "numbers", dtype, {kPeriod}, kept_);
  Queue& queue = backend_.queue();
  queue.copy(Lane::compute, host, there);
  queue.sync(queue.mark(Lane::compute));
  for (const Held& h : staging) h.memory->release(h.data);
  return patterns_.emplace(key, there).first->second;
}

/// The period from a place of the tensor's own on, and then what is there already again and again.
Tensor Pool::fill(const Tensor& t, const Key& key) {
  const Tensor& from = pattern(key);
  Queue& queue = backend_.queue();
  const std::int64_t n = t.size(), start = ++serial_ * kShift % kPeriod;
  const Tensor to = t.view({n});
  const std::int64_t tail = std::min(n, kPeriod - start), head = std::min(n - tail, start);
  queue.copy(Lane::compute, from.span(start, tail), to.span(0, tail));
  queue.copy(Lane::compute, from.span(0, head), to.span(tail, head));
  for (std::int64_t done = tail + head; done < n;) {
    const std::int64_t more = std::min(done, n - done);
    queue.copy(Lane::compute, to.span(0, more), to.span(done, more));
    done += more;
  }
  return t;
}

Tensor Pool::upload_bytes(const char* name, DType dtype, const void* values, std::int64_t count) {
  std::vector<Held> staging;
  const Tensor host = take(backend_.pinned(), name, dtype, {count}, staging);
  std::memcpy(host.data, values, static_cast<std::size_t>(host.bytes()));
  const Tensor t = empty(name, dtype, {count});
  Queue& queue = backend_.queue();
  queue.copy(Lane::compute, host, t);
  queue.sync(queue.mark(Lane::compute));
  for (const Held& h : staging) h.memory->release(h.data);
  return t;
}

std::vector<float> Pool::download(const Tensor& t, std::int64_t begin, std::int64_t count) {
  std::vector<Held> staging;
  const Tensor host = take(backend_.pinned(), t.name, t.dtype, {count}, staging);
  Queue& queue = backend_.queue();
  queue.copy(Lane::compute, t.view({t.size()}).span(begin, count), host);
  queue.sync(queue.mark(Lane::compute));
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(host.dtype == DType::bf16  ? widen(host.as<bf16>()[i])
                     : host.dtype == DType::f32 ? host.as<float>()[i]
                                                : static_cast<float>(host.as<double>()[i]));
  for (const Held& h : staging) h.memory->release(h.data);
  return values;
}

}  // namespace annulus::bench
