// Streams, events and copies of a CUDA device.
#include <numeric>
#include "support/backends.h"
#include "support/device.h"

using namespace annulus;
using namespace annulus::test;

namespace {

/// Device memory that ends with the test.
struct Buffer {
  Buffer(Memory& from, std::int64_t bytes) : memory(from), data(from.allocate(bytes, "test")) {}
  ~Buffer() { memory.release(data); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Memory& memory;
  void* data;
};

constexpr std::int64_t kRows = 37, kColumns = 13, kWide = 29;

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda)

BOOST_AUTO_TEST_CASE(rows_cross_all_places_with_and_without_gaps,
                     *boost::unit_test::precondition(needs_gpu)) {
  Queue& queue = test::cuda()->queue();
  Buffer from(test::cuda()->pinned(), kRows * kWide * 4), on(test::cuda()->memory(), kRows * kWide * 4),
      packed(test::cuda()->memory(), kRows * kColumns * 4), back(test::cuda()->pinned(), kRows * kWide * 4);
  std::vector<float> values(kRows * kWide);
  std::iota(values.begin(), values.end(), 1.f);
  std::copy(values.begin(), values.end(), static_cast<float*>(from.data));
  const auto strided = [](const char* name, void* data, Place place) {
    Tensor t = make_tensor(name, data, DType::f32, {kRows, kColumns}, place);
    t.row_stride = kWide;
    return t;
  };
  const Tensor all = make_tensor("back", back.data, DType::f32, {kRows, kWide});
  queue.zero(Lane::out, all);
  queue.zero(Lane::out, make_tensor("on", on.data, DType::f32, {kRows, kWide}, Place::device));
  queue.wait(Lane::in, queue.mark(Lane::out));
  queue.copy(Lane::in, strided("from", from.data, Place::host), strided("on", on.data, Place::device));
  queue.wait(Lane::compute, queue.mark(Lane::in));
  const Tensor dense = make_tensor("packed", packed.data, DType::f32, {kRows, kColumns}, Place::device);
  queue.copy(Lane::compute, strided("on", on.data, Place::device), dense);
  queue.wait(Lane::out, queue.mark(Lane::compute));
  queue.copy(Lane::out, dense, strided("back", back.data, Place::host));
  queue.sync(queue.mark(Lane::out));
  const float* got = static_cast<const float*>(back.data);
  std::int64_t wrong = 0;
  for (std::int64_t n = 0; n < kRows; ++n)
    for (std::int64_t c = 0; c < kWide; ++c)
      wrong += got[n * kWide + c] != (c < kColumns ? values[static_cast<std::size_t>(n * kWide + c)] : 0.f);
  BOOST_TEST(wrong == 0);
}

BOOST_AUTO_TEST_CASE(zeroing_keeps_what_lies_between_rows, *boost::unit_test::precondition(needs_gpu)) {
  Device device(*test::cuda());
  const Tensor t = device.in("t", DType::bf16, {5, 3}, Floats(15, 2.f), 7);
  test::cuda()->queue().zero(Lane::compute, t);
  BOOST_TEST(device.floats(t) == Floats(15, 0.f), boost::test_tools::per_element());
  BOOST_TEST(device.intact());
}

BOOST_AUTO_TEST_CASE(marks_order_lanes_however_many_there_are, *boost::unit_test::precondition(needs_gpu)) {
  Queue& queue = test::cuda()->queue();
  Buffer a(test::cuda()->memory(), 8), b(test::cuda()->memory(), 8), host(test::cuda()->pinned(), 8);
  const Tensor x = make_tensor("x", a.data, DType::i64, {1}, Place::device),
               y = make_tensor("y", b.data, DType::i64, {1}, Place::device),
               h = make_tensor("h", host.data, DType::i64, {1});
  auto& value = *static_cast<std::int64_t*>(host.data);
  std::vector<Mark> marks;
  for (std::int64_t i = 0; i < 2000; ++i) {  // far more than the events that are kept
    const Lane one = static_cast<Lane>(i % kLanes), other = static_cast<Lane>((i + 3) % kLanes);
    if (!marks.empty()) queue.wait(one, marks.back());
    queue.copy(one, i % 2 == 0 ? x : y, i % 2 == 0 ? y : x);
    queue.wait(other, queue.mark(one));
    marks.push_back(queue.mark(other));
    BOOST_REQUIRE(marks.back().id > marks[marks.size() / 2].id - 1);
  }
  value = 4711;
  queue.sync(marks.back());
  for (const Mark& m : marks) queue.sync(m);  // old ones have passed
  queue.copy(Lane::in, h, x);
  queue.wait(Lane::ring, queue.mark(Lane::in));
  queue.copy(Lane::ring, x, y);
  queue.wait(Lane::out, queue.mark(Lane::ring));
  queue.sync(queue.mark(Lane::out));
  value = 0;
  queue.copy(Lane::out, y, h);
  queue.sync(queue.mark(Lane::out));
  BOOST_TEST(value == 4711);
}

BOOST_AUTO_TEST_CASE(memory_that_is_not_there_names_the_figures, *boost::unit_test::precondition(needs_gpu)) {
  try {
    test::cuda()->memory().allocate(std::int64_t{1} << 50, "a petabyte");
    BOOST_FAIL("no error");
  } catch (const Error& error) {
    BOOST_TEST((error.code == Exit::environment));
    const std::string text = error.what();
    BOOST_TEST(text.find("1125899.91 GB for a petabyte") != std::string::npos, text);
  }
  const std::int64_t used = test::cuda()->device_used_bytes();
  Buffer some(test::cuda()->memory(), std::int64_t{1} << 28);
  BOOST_TEST(test::cuda()->device_used_bytes() >= used + (std::int64_t{1} << 28) - (std::int64_t{2} << 20));
}

BOOST_AUTO_TEST_SUITE_END()
