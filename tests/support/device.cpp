#include "support/device.h"
#include <boost/test/unit_test.hpp>
#include <cstring>
#include "core/bf16.h"

namespace annulus::test {
namespace {

constexpr std::int64_t kFence = 256;  // keeps the tensor as aligned as an arena would
constexpr unsigned char kPattern = 0xA5, kNan = 0xFF;

std::int64_t at_row(const Tensor& t, std::int64_t row) {
  return kFence + row * t.stride() * bytes_of(t.dtype);
}

}  // namespace

Device::~Device() {
  for (const Buffer& b : buffers_) backend_.memory().release(b.all.data);
}

Tensor Device::place(const char* name, DType type, Shape shape, std::int64_t gap, const void* elements) {
  Tensor t = make_tensor(name, nullptr, type, shape, backend_.memory().place());
  if (gap > 0) t.row_stride = t.row_size() + gap;
  const std::int64_t size = 2 * kFence + t.shape[0] * t.stride() * bytes_of(type);
  void* data = backend_.memory().allocate(size, name);
  t.data = static_cast<char*>(data) + kFence;
  const Tensor all = make_tensor(name, data, DType::u8, {size}, t.place);
  buffers_.push_back({t, all});

  char* host = static_cast<char*>(backend_.pinned().allocate(size, name));
  std::memset(host, kPattern, static_cast<std::size_t>(size));
  const std::int64_t row = t.row_size() * bytes_of(type);
  for (std::int64_t i = 0; i < t.shape[0] && row > 0; ++i) {
    if (elements != nullptr)
      std::memcpy(host + at_row(t, i), static_cast<const char*>(elements) + i * row,
                  static_cast<std::size_t>(row));
    else
      std::memset(host + at_row(t, i), kNan, static_cast<std::size_t>(row));
  }
  Queue& queue = backend_.queue();
  queue.copy(Lane::compute, make_tensor(name, host, DType::u8, {size}), all);
  queue.sync(queue.mark(Lane::compute));
  backend_.pinned().release(host);
  return t;
}

Tensor Device::in(const char* name, DType type, Shape shape, const Floats& values, std::int64_t gap) {
  if (type == DType::f32) return place(name, type, shape, gap, values.data());
  std::vector<bf16> narrowed(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) narrowed[i] = narrow(values[i]);
  return place(name, type, shape, gap, narrowed.data());
}

Tensor Device::in(const char* name, Shape shape, const std::vector<std::int32_t>& values) {
  return place(name, DType::i32, shape, 0, values.data());
}
Tensor Device::in(const char* name, Shape shape, const std::vector<std::int64_t>& values) {
  return place(name, DType::i64, shape, 0, values.data());
}
Tensor Device::in(const char* name, Shape shape, const Doubles& values) {
  return place(name, DType::f64, shape, 0, values.data());
}
Tensor Device::out(const char* name, DType type, Shape shape, std::int64_t gap) {
  return place(name, type, shape, gap, nullptr);
}

std::vector<char> Device::read(const Buffer& b) {
  std::vector<char> bytes(static_cast<std::size_t>(b.all.size()));
  void* host = backend_.pinned().allocate(b.all.size(), b.tensor.name);
  Queue& queue = backend_.queue();
  queue.copy(Lane::compute, b.all, make_tensor(b.tensor.name, host, DType::u8, {b.all.size()}));
  queue.sync(queue.mark(Lane::compute));
  std::memcpy(bytes.data(), host, bytes.size());
  backend_.pinned().release(host);
  return bytes;
}

const Device::Buffer& Device::buffer_of(const Tensor& t) const {
  for (const Buffer& b : buffers_) {
    const char* begin = static_cast<const char*>(b.all.data);
    if (t.data >= begin && t.data < begin + b.all.size()) return b;
  }
  fail("Device", std::string(t.name) + " is not a tensor of this device");
}

template <class T>
std::vector<T> Device::elements(const Tensor& t) {
  const Buffer& b = buffer_of(t);
  const std::vector<char> bytes = read(b);
  const char* from = bytes.data() + (static_cast<const char*>(t.data) - static_cast<const char*>(b.all.data));
  std::vector<T> values(static_cast<std::size_t>(t.size()));
  const auto row = static_cast<std::size_t>(t.row_size());
  for (std::int64_t i = 0; i < t.shape[0] && row > 0; ++i)
    std::memcpy(values.data() + static_cast<std::size_t>(i) * row, from + i * t.stride() * bytes_of(t.dtype),
                row * sizeof(T));
  return values;
}

Floats Device::floats(const Tensor& t) {
  if (t.dtype == DType::f32) return elements<float>(t);
  Floats values;
  const auto exact = [&](std::int64_t v) {
    need(v < (1 << 24) && v > -(1 << 24), std::string(t.name) + ": a number that no float holds");
    values.push_back(static_cast<float>(v));
  };
  if (t.dtype == DType::i32)
    for (const std::int32_t v : elements<std::int32_t>(t)) exact(v);
  else if (t.dtype == DType::i64)
    for (const std::int64_t v : elements<std::int64_t>(t)) exact(v);
  else
    for (const bf16 v : elements<bf16>(t)) values.push_back(widen(v));
  return values;
}

Doubles Device::doubles(const Tensor& t) {
  need(t.dtype == DType::f64, "Device::doubles: f64");
  return elements<double>(t);
}

bool Device::intact() {
  for (const Buffer& b : buffers_) {
    std::vector<char> bytes = read(b);
    const auto row = static_cast<std::size_t>(b.tensor.row_size() * bytes_of(b.tensor.dtype));
    for (std::int64_t i = 0; i < b.tensor.shape[0] && row > 0; ++i)
      std::memset(bytes.data() + at_row(b.tensor, i), kPattern, row);
    for (const char c : bytes)
      if (static_cast<unsigned char>(c) != kPattern) return false;
  }
  return true;
}

std::vector<Floats> run_twice(Backend& backend, const Operation& operation) {
  std::vector<Floats> results[2];
  for (auto& result : results) {
    Device device(backend);
    for (const Tensor& t : operation(device)) result.push_back(device.floats(t));
    BOOST_TEST(device.intact(), "something was written outside the tensors");
  }
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    const Floats &a = results[0][i], &b = results[1][i];
    BOOST_TEST((a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0),
               "a second run gave other bits");
  }
  return std::move(results[0]);
}

}  // namespace annulus::test
