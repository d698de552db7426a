// Offloaded optimizer state: the same bits as where all lies on the device, in less of its memory.
#include "train/optimizer.h"
#include <boost/test/unit_test.hpp>
#include <cstring>
#include "core/bf16.h"
#include "core/rng.h"
#include "support/lazy_backend.h"
#include "support/world.h"
#include "train/memory_plan.h"
#include "train/staging.h"
#include "train/trained.h"
#include "train/weights_fill.h"

using namespace annulus;
using namespace annulus::test;

namespace {

struct Kind {
  const char* what;
  DType compute, state, gradients;
};
constexpr Kind kKinds[] = {{"all f32", DType::f32, DType::f32, DType::f32},
                           {"f32 state of bf16 weights", DType::bf16, DType::f32, DType::f32},
                           {"all bf16", DType::bf16, DType::bf16, DType::bf16}};

EngineSpec spec_of(const Kind& k, const Grid& grid, bool offload, std::int64_t slice) {
  RunConfig run = tiny_run("qwen3_tied_yarn", {"--data.sequence", "67", "--data.packing", "none",
                                               "--optimizer.weight_decay", "0.1"});
  run.optimizer.offload = offload;
  EngineSpec spec = make_spec(model_config_of(run), run, grid, k.compute);
  spec.state.state = k.state;
  spec.state.gradients = k.gradients;
  spec.state.slice = slice;
  return spec;
}

LocalRow random_row(const EngineSpec& spec, std::uint64_t seed) {
  LocalRow row = plain_row(spec);
  row.ids.assign(static_cast<std::size_t>(row.map.local_tokens()), 0);
  row.targets = row.ids;
  row.positions.assign(row.ids.size(), 0);
  for (std::size_t i = 0; i < row.ids.size(); ++i) {
    row.ids[i] = static_cast<std::int32_t>(draw(seed, Draw::test, 1, i)[0] % 89);
    row.targets[i] = static_cast<std::int32_t>(draw(seed, Draw::test, 2, i)[0] % 89);
    row.positions[i] = static_cast<std::int64_t>(i);
  }
  return row;
}

/// The bytes of all masters and moments.
std::string all_bytes(Engine& engine) {
  engine.settle();
  std::string all;
  const auto add = [&](const Tensor& t) {
    all.append(static_cast<const char*>(t.data), static_cast<std::size_t>(t.bytes()));
  };
  for (int u = 0; u < static_cast<int>(engine.state().units().size()); ++u) {
    const UnitState& s = engine.state().state(u);
    for (const Tensor& t : {s.master, s.m, s.v}) add(t);
  }
  return all;
}

/// Two steps, the second of which computes with what the first has left; all ranks share the state.
std::string state_after(Backend& backend, Comm& world, const EngineSpec& spec) {
  const Node node{.host = "here", .local_rank = world.rank(), .local_size = world.size()};
  Engine engine(backend, make_groups(backend, world, spec.grid, node, "world"),
                std::make_unique<Arena>(backend.queue(), backend.memory(),
                                        plan_memory(spec, node, Place::host, &backend.ops(), false)),
                spec, [] {});
  engine.settle();  // the host is about to write where zeros may still be on their way
  {
    Staging staging(backend);
    fill_random(engine.state(), {0, static_cast<int>(engine.state().units().size())}, staging, 5, [] {});
  }
  engine.masters_filled();
  for (std::int64_t step = 1; step <= 2; ++step) {
    engine.micro(random_row(spec, static_cast<std::uint64_t>(10 * step + world.rank())), 0.01);
    engine.update(1e-2, step);
  }
  return all_bytes(engine);
}

void offload_gives_the_same_bits() {
  const auto backend = make_cpu_backend(1);
  const auto world = session().world(backend->queue());
  const Grid grid = make_grid(world->rank(), world->size(), 1, 1);
  for (const Kind& k : kKinds) {
    const std::string want = state_after(*backend, *world, spec_of(k, grid, false, 1 << 24));
    BOOST_TEST(want.size() > 100'000u);
    // Slices that cut every parameter, that cut none, and, in the least convenient order of the lanes, both.
    for (const std::int64_t slice : {192, 4096, 1 << 24})
      BOOST_TEST((state_after(*backend, *world, spec_of(k, grid, true, slice)) == want),
                 k.what << ", slices of " << slice);
    for (const std::uint64_t seed : {0, 3, 4}) {
      LazyBackend lazy(*backend, Lane::in, seed);
      BOOST_TEST((state_after(lazy, *world, spec_of(k, grid, true, 4096)) == want), k.what << ", lazily");
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(train)

BOOST_AUTO_TEST_CASE(offloaded_state_gives_the_same_bits) {
  offload_gives_the_same_bits();
}
BOOST_AUTO_TEST_CASE(offloaded_state_gives_the_same_bits_2, *boost::unit_test::label("ranks2")) {
  offload_gives_the_same_bits();
}

BOOST_AUTO_TEST_CASE(the_plan_counts_offloaded_state_on_the_host) {
  const Grid grid = make_grid(0, 2, 1, 1);
  const Node node{.host = "here", .local_size = 2};
  for (const Kind& k : kKinds) {
    const auto bytes = [&](bool offload, std::int64_t* host) {
      const EngineSpec spec = spec_of(k, grid, offload, 4096);
      const auto dry = make_dry_backend(Place::device, nullptr);
      Engine engine(*dry, make_loopback_groups(*dry, grid, node, "world"),
                    std::make_unique<Arena>(dry->queue(), dry->memory()), spec, [] {});
      *host = engine.state().host_bytes();
      return plan_memory(spec, node, Place::device, nullptr, false).kept_bytes();
    };
    std::int64_t host = 0, none = 0;
    const std::int64_t all = bytes(false, &none), rest = bytes(true, &host);
    BOOST_TEST(none == 0);
    const auto shards = [&](DType type) {
      std::int64_t sum = 0;
      for (const Unit& unit : make_units(spec_of(k, grid, true, 1).model))
        sum += (unit.piece(2) * bytes_of(type) + 255) / 256 * 256;
      return sum;
    };
    const bool apart = k.compute != k.state;
    BOOST_TEST(host == (apart ? 3 : 2) * shards(k.state), k.what);
    BOOST_TEST(all - rest == host - (apart ? shards(k.compute) : 0), k.what);
  }
}

BOOST_AUTO_TEST_SUITE_END()
