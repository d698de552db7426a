// Clocks of lanes where nothing happens, and lanes that take their time on the CPU.
#include "ops/dry/dry_queue.h"
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <functional>
#include <utility>
#include "ops/cpu/queue.h"

using namespace annulus;
using boost::test_tools::tolerance;

namespace {

// A copy moves 1 GB/s, pinned copies half of that and a quarter when both ways are busy; calls cost the host
// a millisecond.
const Rates kRates = Rates::parse(
    "device D\npeak_tflops 1\ndevice_gb 1\nstart_gb 0\nlater_gb 0\nranks_per_node 1\ncopy_gbs 1\npinned_gbs "
    "0.5\n"
    "pinned_both_gbs 0.25\nlink_gbs 1\nnetwork_gbs 1\nlatency_us 0\nlaunch_us 1000\nscratch.attention_bwd.q "
    "0\n"
    "scratch.attention_bwd.k 0\nscratch.attention_bwd.row 0\ntflops.matmul 0.001\ntflops.attention_fwd.full "
    "1\n"
    "tflops.attention_fwd.causal 1\ntflops.attention_fwd.partial 1\ntflops.attention_bwd.full 1\n"
    "tflops.attention_bwd.causal 1\ntflops.attention_bwd.partial 1\n",
    "test");

Tensor bytes(std::int64_t n, Place place) {
  return make_tensor("bytes", reinterpret_cast<void*>(256), DType::u8, {n}, place);
}

Cost product(double seconds) {
  return {"matmul", "matmul", seconds * 1e9, 0, 0};
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr std::int64_t kGiga = 1'000'000'000;

}  // namespace

BOOST_AUTO_TEST_SUITE(ops)

BOOST_AUTO_TEST_CASE(dry_lanes_run_side_by_side_and_wait_for_marks) {
  DryQueue q(&kRates);
  const Tensor host = bytes(kGiga, Place::host), device = bytes(kGiga, Place::device);
  q.copy(Lane::in, host, device);  // 2 s
  const Mark here = q.mark(Lane::in);
  q.spend(Lane::compute, product(1.5));
  q.wait(Lane::compute, here);  // half a second of the copy shows
  q.spend(Lane::compute, product(1));
  q.wait(Lane::compute, here);  // long past
  const DryTimes t = q.take();
  BOOST_TEST(t.seconds == 3.0, tolerance(1e-9));
  BOOST_TEST(t.busy[static_cast<int>(Lane::compute)] == 2.5, tolerance(1e-9));
  BOOST_TEST(t.busy[static_cast<int>(Lane::in)] == 2.0, tolerance(1e-9));
  BOOST_TEST(t.waited_for[static_cast<int>(Lane::in)] == 0.499, tolerance(1e-9));
  BOOST_TEST(t.waited_for[static_cast<int>(Lane::compute)] == 0.001,
             tolerance(1e-9));  // the first call's launch
  BOOST_TEST((t.kinds.at("matmul").calls == 2 && t.kinds.at("matmul").flops == 2.5e9));
  BOOST_TEST(t.kinds.at("copies from the host").bytes == 1e9);
  BOOST_TEST(q.take().seconds == 0.0);
}

BOOST_AUTO_TEST_CASE(dry_copies_share_the_way_to_the_host) {
  DryQueue q(&kRates);
  const Tensor host = bytes(kGiga, Place::host), device = bytes(kGiga, Place::device);
  q.copy(Lane::out, device, host);
  q.copy(Lane::in, host, device);
  const DryTimes t = q.take();
  BOOST_TEST(t.busy[static_cast<int>(Lane::out)] == 2.0, tolerance(1e-9));
  BOOST_TEST(t.busy[static_cast<int>(Lane::in)] == 4.0, tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(dry_transfers_take_their_time_whatever_they_copy) {
  DryQueue q(&kRates);
  const Tensor a = bytes(kGiga, Place::device);
  q.begin_transfer(Lane::ring);
  q.copy(Lane::ring, a, a);
  q.end_transfer(Lane::ring, 0.25);
  q.sync(q.mark(Lane::ring));
  q.spend(Lane::compute, product(1));  // queued once the host has seen the transfer's end
  BOOST_TEST(q.take().seconds == 1.25, tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(tiles_of_a_dry_loop_count_as_often_as_they_are) {
  const auto walk = [](Queue& q, std::int64_t count, std::int64_t tile,
                       const std::function<void(Tile)>& turn) {
    for (const Tile t : Tiles(q, count, tile)) turn(t);
  };
  for (const auto [count, tile] :
       {std::pair<std::int64_t, std::int64_t>{103, 10}, {100, 10}, {7, 10}, {1, 1}, {0, 3}}) {
    // A queue that does not repeat sees every tile, once, in order.
    CpuQueue plain;
    std::int64_t next = 0, turns = 0;
    walk(plain, count, tile, [&](Tile t) {
      BOOST_TEST(t.at == next);
      BOOST_TEST((t.count > 0 && t.count <= tile));
      next += t.count;
      ++turns;
    });
    BOOST_TEST(next == count);
    // One that does sees two at most, and counts the same.
    DryQueue dry(&kRates);
    int seen = 0;
    walk(dry, count, tile, [&](Tile t) {
      dry.spend(Lane::compute, product(static_cast<double>(t.count)));
      ++seen;
    });
    BOOST_TEST(seen <= 2);
    BOOST_TEST(dry.repeats() == 1);
    const DryTimes times = dry.take();
    if (count == 0) continue;
    BOOST_TEST(times.kinds.at("matmul").calls == turns);
    BOOST_TEST(times.kinds.at("matmul").flops == 1e9 * static_cast<double>(count));
  }
}

BOOST_AUTO_TEST_CASE(cpu_transfers_take_their_time_beside_the_computation) {
  constexpr double kSeconds = 0.15;
  CpuQueue q;
  BOOST_TEST(q.mark(Lane::ring).id == 0u);
  double begun = now();
  q.begin_transfer(Lane::ring);
  q.end_transfer(Lane::ring, kSeconds);
  const Mark one = q.mark(Lane::ring);
  q.begin_transfer(Lane::ring);  // begins when the one before has ended
  q.end_transfer(Lane::ring, kSeconds);
  const Mark both = q.mark(Lane::ring);
  BOOST_TEST(both.id - one.id == static_cast<std::uint64_t>(kSeconds * 1e9));
  q.wait(Lane::gather, both);  // another lane waits; the host does not
  BOOST_TEST(q.mark(Lane::gather).id == both.id);
  q.wait(Lane::compute, both);
  BOOST_TEST(now() - begun >= 2 * kSeconds);
  BOOST_TEST(q.mark(Lane::ring).id == 0u);  // passed, and on the other lane too
  BOOST_TEST(q.mark(Lane::gather).id == 0u);
  begun = now();
  q.begin_transfer(Lane::compute);
  q.end_transfer(Lane::compute, kSeconds);
  BOOST_TEST(now() - begun >= kSeconds);
}

BOOST_AUTO_TEST_SUITE_END()
