#include "parallel/activation_store.h"
#include <boost/test/unit_test.hpp>
#include <vector>

using namespace annulus;

namespace {

struct Fixture {
  std::unique_ptr<Backend> backend = make_cpu_backend(1);
  Arena arena{backend->queue(), backend->memory()};

  Tensor filled(float value, std::int64_t rows) {
    const Tensor t = arena.take(Region::saved, "x", DType::f32, {rows, 5});
    for (std::int64_t i = 0; i < t.size(); ++i) t.as<float>()[i] = value + static_cast<float>(i);
    return t;
  }
  static bool holds(const Tensor& t, float value) {
    for (std::int64_t i = 0; i < t.size(); ++i)
      if (t.as<float>()[i] != value + static_cast<float>(i)) return false;
    return true;
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(parallel)

BOOST_FIXTURE_TEST_CASE(saved_tensors_come_back_from_device_and_host, Fixture) {
  constexpr std::int64_t kLayers = 4, kHost = 2, kRows = 7;
  ActivationStore store(*backend, arena, kLayers, kHost);
  for (int row = 0; row < 2; ++row) {  // the second row uses the first one's buffers
    arena.begin("micro");
    const auto value = [&](std::int64_t l) { return static_cast<float>(100 * l + 1000 * row); };
    std::vector<void*> device;
    for (std::int64_t l = 0; l < kLayers; ++l) {
      const Tensor x = filled(value(l), kRows);
      device.push_back(x.data);
      store.save(l, Saved::x, x);
      store.settle(l - 1);
    }
    for (std::int64_t l = kLayers; l-- > 0;) {
      if (l > 0) store.fetch(l - 1);
      Tensor x = store.get(l, Saved::x);
      x.expect({kRows, 5});
      BOOST_TEST(holds(x, value(l)));
      BOOST_TEST((x.data == device[static_cast<std::size_t>(l)] || l < kHost));
      store.park(l, Saved::x);
      store.fetch(l);
      x = store.get(l, Saved::x);
      BOOST_TEST(holds(x, value(l)));
      store.release(l, Saved::x);
    }
    BOOST_TEST(store.host_bytes() == kHost * 256);  // 140 bytes a layer, rounded up
  }
  arena.begin("next");  // fails when a temporary is still alive
}

BOOST_FIXTURE_TEST_CASE(the_activation_store_starts_afresh_after_an_abandoned_row, Fixture) {
  ActivationStore store(*backend, arena, 2, 2);
  arena.begin("micro");
  const Tensor x = filled(1, 3), y = filled(2, 3);
  store.save(0, Saved::x, x);
  store.save(1, Saved::x, y);
  store.settle(0);
  BOOST_TEST(store.get(1, Saved::x).data == y.data);  // not settled: still here
  store.abandon();
  arena.abandon();
  arena.begin("next");
  store.save(0, Saved::x, filled(3, 3));
  BOOST_TEST(holds(store.get(0, Saved::x), 3));
  store.release(0, Saved::x);
  BOOST_TEST(store.host_bytes() == 512);
}

BOOST_FIXTURE_TEST_CASE(misuse_of_the_activation_store_is_named, Fixture) {
  ActivationStore store(*backend, arena, 3, 1);
  arena.begin("micro");
  store.save(0, Saved::x, filled(0, 2));
  const Tensor again = filled(0, 2);
  BOOST_CHECK_THROW(store.save(0, Saved::x, again), Error);
  BOOST_CHECK_THROW(store.get(0, Saved::a), Error);
  store.settle(0);
  BOOST_CHECK_THROW(store.release(0, Saved::x), Error);  // it is on the host
  arena.abandon();
}

BOOST_AUTO_TEST_SUITE_END()
