#include "parallel/sharded_state.h"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include "core/bf16.h"
#include "support/lazy_backend.h"
#include "support/world.h"

using namespace annulus;
using namespace annulus::test;

namespace {

/// Units of awkward sizes: gaps between parameters, joined ones, one smaller than the group, one frozen.
std::vector<Unit> make_test_units() {
  std::uint64_t id = 0;
  const auto parameter = [&](const char* name, std::vector<std::int64_t> shape, bool trained = true) {
    Parameter p;
    p.name = name;
    p.shape = std::move(shape);
    p.trained = trained;
    p.id = id++;
    return p;
  };
  std::vector<Unit> units(4);
  units[0].name = "embedding";
  units[0].add(parameter("embed", {37, 11}));
  units[1].name = "layer";
  units[1].add(parameter("norm", {11}));
  units[1].add(parameter("q", {6, 11}));
  units[1].add(parameter("k", {3, 11}), true);
  units[1].add(parameter("v", {3, 11}), true);
  units[1].add(parameter("q_bias", {5}));
  units[1].add(parameter("k_bias", {2}), true);
  units[2].name = "frozen";
  units[2].add(parameter("base", {13, 7}, false));
  units[3].name = "head";
  units[3].add(parameter("scalar", {1}));
  return units;
}

/// Small whole numbers: exact in bf16, and so are the sums that the tests make of them.
float weight_of(const Parameter& p, std::int64_t i) {
  return static_cast<float>((static_cast<std::int64_t>(p.id) * 5 + i) % 13 - 6);
}
float slope_of(const Parameter& p, std::int64_t i) {
  return static_cast<float>((static_cast<std::int64_t>(p.id) + i * 3) % 7 - 3);
}

float value(const Tensor& t, std::int64_t i) {
  return t.dtype == DType::f32 ? t.as<float>()[i] : widen(t.as<bf16>()[i]);
}
void set(const Tensor& t, std::int64_t i, float v) {
  if (t.dtype == DType::f32)
    t.as<float>()[i] = v;
  else
    t.as<bf16>()[i] = narrow(v);
}

void fill_masters(ShardedState& state) {
  for (int u = 0; u < static_cast<int>(state.units().size()); ++u)
    for (const Segment& s : state.state(u).segments)
      for (std::int64_t i = 0; i < s.count; ++i)
        set(state.state(u).master, s.at + i, weight_of(*s.parameter, s.from + i));
}

/// The whole gathered unit holds every parameter's weights and zeros in between.
void check_gathered(const Unit& unit, const Tensor& flat) {
  std::vector<float> want(static_cast<std::size_t>(flat.size()), 0.f);
  for (std::size_t p = 0; p < unit.parameters.size(); ++p)
    for (std::int64_t i = 0; i < unit.parameters[p].size(); ++i)
      want[static_cast<std::size_t>(unit.offsets[p] + i)] = weight_of(unit.parameters[p], i);
  bool same = true;
  for (std::int64_t i = 0; i < flat.size(); ++i)
    same = same && value(flat, i) == want[static_cast<std::size_t>(i)];
  BOOST_TEST(same, unit.name);
}

/// Gradient shards are `factor` times the slopes, and zero in the gaps.
void check_shards(ShardedState& state, float factor) {
  for (int u = 0; u < static_cast<int>(state.units().size()); ++u) {
    const UnitState& s = state.state(u);
    if (!s.grad) continue;
    std::vector<float> want(static_cast<std::size_t>(s.grad.size()), 0.f);
    for (const Segment& part : s.segments)
      for (std::int64_t i = 0; i < part.count; ++i)
        want[static_cast<std::size_t>(part.at + i)] = factor * slope_of(*part.parameter, part.from + i);
    bool same = true;
    for (std::int64_t i = 0; i < s.grad.size(); ++i)
      same = same && value(s.grad, i) == want[static_cast<std::size_t>(i)];
    BOOST_TEST(same, "gradient shard of " << state.units()[static_cast<std::size_t>(u)].name);
  }
}

/// Groups as a run makes them: `copies` whole copies of the state, each over world / copies ranks.
struct TestGroups {
  std::unique_ptr<Comm> shard, replica;
  TestGroups(Backend& backend, const Comm& world, int copies) {
    const int size = world.size() / copies;
    shard = backend.device_comm(world.split(world.rank() / size));
    replica = backend.device_comm(world.split(world.rank() % size));
  }
};

/// A step as a model makes it: units forward and backward with the next one gathered ahead, every rank adding
/// its own slopes `rank + 1` times. Sums all weights that it sees into `seen`.
class Stepper {
 public:
  Stepper(Backend& backend, Arena& arena, ShardedState& state, int world_rank)
      : ops_(backend.ops()), arena_(arena), state_(state) {
    for (const Unit& unit : state.units()) {
      seen_.push_back(arena.keep(Region::workspace, "seen", DType::f32, {unit.size}));
      slopes_.push_back(arena.keep(Region::workspace, "slopes", DType::f32, {unit.size}));
      backend.queue().zero(Lane::compute, seen_.back());
      if (std::string(ops_.kind()) == "dry") continue;
      std::fill_n(slopes_.back().as<float>(), unit.size, 0.f);
      for (std::size_t p = 0; p < unit.parameters.size(); ++p)
        for (std::int64_t i = 0; i < unit.parameters[p].size(); ++i)
          slopes_.back().as<float>()[unit.offsets[p] + i] =
              static_cast<float>(world_rank + 1) * slope_of(unit.parameters[p], i);
    }
  }
  void micro() {
    arena_.begin("micro");
    const int last = static_cast<int>(state_.units().size()) - 1;
    for (int u = 0; u <= last; ++u) {
      const UnitView w = state_.use(u);
      if (u < last) state_.prefetch(u + 1);
      look(u, w);
      state_.drop(u);
    }
    for (int u = last; u >= 0; --u) {
      const UnitView w = state_.use(u);
      if (u > 0) state_.prefetch(u - 1);
      look(u, w);
      if (state_.state(u).grad) {
        const Tensor g = state_.open_gradient(u).flat();
        ops_.add(Lane::compute, {.x = slopes(u), .y = g.span(0, slopes(u).size())});
        state_.reduce(u);
      }
      state_.drop(u);
    }
    state_.release_reduced();
  }
  double update() {
    // Only a wide copy of narrow sums needs memory; else marks must do without the fence between phases.
    if (state_.options().gradients != DType::f32) arena_.begin("update");
    state_.finish_gradients();
    return state_.gradient_square_sum();
  }
  const Tensor& seen(int u) const { return seen_[static_cast<std::size_t>(u)]; }

 private:
  const Tensor& slopes(int u) const { return slopes_[static_cast<std::size_t>(u)]; }
  void look(int u, const UnitView& w) {
    ops_.add(Lane::compute, {.x = w.flat().span(0, seen(u).size()), .y = seen(u)});
  }
  Ops& ops_;
  Arena& arena_;
  ShardedState& state_;
  std::vector<Tensor> seen_, slopes_;
};

/// Sum of squared slopes of all trained parameters.
double slope_squares() {
  double sum = 0;
  for (const Unit& unit : make_test_units())
    for (const Parameter& p : unit.parameters)
      for (std::int64_t i = 0; p.trained && i < p.size(); ++i) sum += std::pow(slope_of(p, i), 2);
  return sum;
}

constexpr StateOptions kOptions[] = {{DType::f32, DType::f32, DType::f32},
                                     {DType::bf16, DType::f32, DType::f32},
                                     {DType::bf16, DType::bf16, DType::bf16},
                                     {DType::f32, DType::f32, DType::bf16}};

void round_trip() {
  const auto backend = make_cpu_backend(1);
  const auto world = session().world(backend->queue());
  const int R = world->size();
  for (const StateOptions& options : kOptions)
    for (int copies = 1; copies <= R; ++copies) {
      if (R % copies != 0) continue;
      Arena arena(backend->queue(), backend->memory());
      TestGroups groups(*backend, *world, copies);
      ShardedState state(*backend, arena, make_test_units(), *groups.shard, *groups.replica, options);
      Stepper stepper(*backend, arena, state, world->rank());
      fill_masters(state);

      arena.begin("look");
      for (int u = 0; u < 4; ++u) {
        const Unit& unit = state.units()[static_cast<std::size_t>(u)];
        state.prefetch(u);
        state.prefetch(u);
        const UnitView view = state.use(u);
        BOOST_TEST((view.flat().dtype == options.compute));
        check_gathered(unit, view.flat());
        BOOST_TEST(state.use(u).flat().data == view.flat().data);
        state.drop(u);
      }

      constexpr int kMicro = 2;
      for (int m = 0; m < kMicro; ++m) stepper.micro();
      const double squares = stepper.update();
      const auto factor = static_cast<float>(kMicro * R * (R + 1) / 2);
      check_shards(state, factor);
      BOOST_TEST(squares == factor * factor * slope_squares());  // whole numbers: exact
      state.zero_gradients();
      check_shards(state, 0);
      BOOST_TEST(state.gradient_square_sum() == 0);
    }
}

/// Norms that other programs got wrong: square sums of 20 on one rank and 100 on the next are sqrt(120)
/// = 10.954, not their mean; four 3s and four 4s are 10, whatever the layout.
void norm_counts_everything_once() {
  const auto backend = make_cpu_backend(1);
  const auto world = session().world(backend->queue());
  for (int copies = 1; copies <= world->size(); ++copies) {
    if (world->size() % copies != 0) continue;
    Arena arena(backend->queue(), backend->memory());
    TestGroups groups(*backend, *world, copies);
    ShardedState state(*backend, arena, make_test_units(), *groups.shard, *groups.replica, {});
    const auto norm_of = [&](const std::function<float(const Parameter&, std::int64_t)>& gradient) {
      arena.begin("micro");
      // The first rank alone has targets: its copy's sum is the step's.
      for (int u : {0, 1, 3}) {
        const UnitView g = state.open_gradient(u);
        const Unit& unit = state.units()[static_cast<std::size_t>(u)];
        for (std::size_t p = 0; p < unit.parameters.size() && world->rank() == 0; ++p)
          for (std::int64_t i = 0; i < unit.parameters[p].size(); ++i)
            g[static_cast<int>(p)].as<float>()[i] += gradient(unit.parameters[p], i);
        state.reduce(u);
      }
      state.release_reduced();
      arena.begin("update");
      state.finish_gradients();
      const double norm = std::sqrt(state.gradient_square_sum());
      state.zero_gradients();
      return norm;
    };
    const auto in_pieces = [](const Parameter& p, std::int64_t i) {
      if (p.name != "embed") return 0.f;
      if (i == 0) return 2.f;  // 4 + 16 = 20 at the front,
      if (i == 1) return 4.f;
      return i == 406 ? 10.f : 0.f;  // 100 at the back: with two or more ranks another's piece
    };
    BOOST_TEST(norm_of(in_pieces) == std::sqrt(120.0));
    const auto threes_and_fours = [](const Parameter& p, std::int64_t i) {
      if (i >= 4) return 0.f;
      return p.name == "v" ? 3.f : p.name == "embed" ? 4.f : 0.f;
    };
    BOOST_TEST(norm_of(threes_and_fours) == 10.0);
  }
}

/// A layer of six experts beside a dense unit.
std::vector<Unit> make_expert_units(std::int64_t experts) {
  std::vector<Unit> units(2);
  units[0].name = "layer";
  Parameter p;
  p.name = "router", p.shape = {experts, 5};
  units[0].add(p);
  units[1].name = "experts";
  units[1].owners = Owners::experts;
  p.name = "up", p.shape = {experts, 7, 5}, p.id = 1;
  units[1].add(p);
  p.name = "down", p.shape = {experts, 5, 3}, p.id = 2;
  units[1].add(p);
  return units;
}

/// Each rank gathers its own experts, whatever ranks share them and their state; each element is owned once.
void experts_are_held_in_parts() {
  const auto backend = make_cpu_backend(1);
  const auto world = session().world(backend->queue());
  const int R = world->size(), rank = world->rank();
  const std::int64_t E = 12;
  for (int parts = 1; parts <= R; ++parts)
    for (const bool replicated : {false, true}) {
      if (R % parts != 0) continue;
      const int part = rank % parts;
      const auto holders = backend->device_comm(world->split(replicated ? rank : part));
      const auto copies = backend->device_comm(world->split(replicated ? part : rank));
      TestGroups dense(*backend, *world, replicated ? R : 1);
      Arena arena(backend->queue(), backend->memory());
      ShardedState state(*backend, arena, make_expert_units(E), *dense.shard, *dense.replica, {},
                         {holders.get(), copies.get(), world.get(), part, parts});
      BOOST_TEST_INFO("parts " << parts << " replicated " << replicated);
      fill_masters(state);
      arena.begin("micro");
      const UnitView held = state.use(1);
      const std::int64_t X = E / parts;
      for (int i = 0; i < 2; ++i) {
        const Parameter& p = state.units()[1].parameters[static_cast<std::size_t>(i)];
        const Tensor t = held[i];
        BOOST_TEST((t.rank == 3 && t.shape[0] == X && t.shape[1] == p.shape[1] && t.shape[2] == p.shape[2]));
        bool same = true;
        for (std::int64_t k = 0; k < t.size(); ++k)
          same = same && value(t, k) == weight_of(p, part * t.size() + k);
        BOOST_TEST(same, p.name);
      }
      state.drop(1);
      // Every rank adds (rank + 1) times the slopes of its experts: sums run over those that hold the same.
      for (int u : {0, 1}) {
        const UnitView g = state.open_gradient(u);
        const std::vector<Parameter>& parameters = state.units()[static_cast<std::size_t>(u)].parameters;
        for (std::size_t i = 0; i < parameters.size(); ++i) {
          const Tensor t = g[static_cast<int>(i)];
          const std::int64_t from = u == 1 ? part * t.size() : 0;
          for (std::int64_t k = 0; k < t.size(); ++k)
            t.as<float>()[k] += static_cast<float>(rank + 1) * slope_of(parameters[i], from + k);
        }
        state.reduce(u);
      }
      state.release_reduced();
      arena.begin("update");
      state.finish_gradients();
      double want = 0;
      for (const Unit& unit : state.units())
        for (const Parameter& p : unit.parameters)
          for (std::int64_t i = 0; i < p.size(); ++i) {
            const std::int64_t owner = unit.owners == Owners::experts ? i / (p.size() / parts) : 0;
            double sum = 0;
            for (int r = 0; r < R; ++r)
              if (unit.owners == Owners::all || r % parts == owner) sum += r + 1;
            want += std::pow(sum * slope_of(p, i), 2);
          }
      BOOST_TEST(state.gradient_square_sum() == want);  // whole numbers: exact
      // One copy of the state holds each element once.
      std::vector<std::int64_t> seen(static_cast<std::size_t>(E * 50), 0);
      for (const Segment& s : state.state(1).segments)
        for (std::int64_t k = 0; k < s.count; ++k)
          ++seen[static_cast<std::size_t>((s.parameter->name == "up" ? 0 : E * 35) + s.from + k)];
      world->all_reduce(std::span(seen));
      BOOST_TEST(std::all_of(seen.begin(), seen.end(),
                             [&](std::int64_t n) { return n == (replicated ? R / parts : 1); }));
    }
}

/// The plan of a dry step serves the real one, and marks alone keep the lanes in order.
void follows_plan_and_marks() {
  struct Order {
    Lane favourite;
    std::uint64_t seed;
  };
  const auto real = make_cpu_backend(1);
  const auto world = session().world(real->queue());
  const int R = world->size(), rank = world->rank();
  for (const StateOptions& options : kOptions)
    for (int copies : {1, R}) {
      const auto dry = make_dry_backend(Place::host, nullptr);
      const auto whole = make_loopback_comm(dry->queue(), rank, R);
      const auto pretended_shard = whole->split_by([&](int r) { return r / (R / copies); });
      const auto pretended_replica = whole->split_by([&](int r) { return r % (R / copies); });
      Arena counting(dry->queue(), dry->memory());
      ShardedState counted(*dry, counting, make_test_units(), *pretended_shard, *pretended_replica, options);
      Stepper pretending(*dry, counting, counted, rank);
      pretending.micro();
      BOOST_TEST(pretending.update() == 0);
      const Layout layout = counting.layout();

      for (const Order order : {Order{Lane::compute, 0}, Order{Lane::gather, 0}, Order{Lane::reduce, 0},
                                Order{Lane::in, 3}, Order{Lane::in, 4}}) {
        LazyBackend lazy(*real, order.favourite, order.seed);
        TestGroups groups(lazy, *world, copies);
        Arena arena(lazy.queue(), lazy.memory(), layout);
        ShardedState state(lazy, arena, make_test_units(), *groups.shard, *groups.replica, options);
        Stepper stepper(lazy, arena, state, rank);
        lazy.queue().run_all();
        fill_masters(state);
        for (int m = 0; m < 3; ++m) stepper.micro();
        const auto factor = static_cast<float>(3 * R * (R + 1) / 2);
        BOOST_TEST(stepper.update() == factor * factor * slope_squares());
        lazy.queue().run_all();
        check_shards(state, factor);
        for (int u = 0; u < 4; ++u) {
          const Unit& unit = state.units()[static_cast<std::size_t>(u)];
          for (std::size_t p = 0; p < unit.parameters.size(); ++p)
            for (std::int64_t i = 0; i < unit.parameters[p].size(); i += 3)
              BOOST_TEST(stepper.seen(u).as<float>()[unit.offsets[p] + i] ==
                         6 * weight_of(unit.parameters[p], i));
        }
      }
    }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(parallel)

// Each over one to four ranks.
#define STATE_TEST(work)                                                       \
  BOOST_AUTO_TEST_CASE(state_##work##_1) {                                     \
    work();                                                                    \
  }                                                                            \
  BOOST_AUTO_TEST_CASE(state_##work##_2, *boost::unit_test::label("ranks2")) { \
    work();                                                                    \
  }                                                                            \
  BOOST_AUTO_TEST_CASE(state_##work##_3, *boost::unit_test::label("ranks3")) { \
    work();                                                                    \
  }                                                                            \
  BOOST_AUTO_TEST_CASE(state_##work##_4, *boost::unit_test::label("ranks4")) { \
    work();                                                                    \
  }

STATE_TEST(round_trip)
STATE_TEST(norm_counts_everything_once)
STATE_TEST(follows_plan_and_marks)

BOOST_AUTO_TEST_CASE(unit_views_have_full_shapes) {
  const auto backend = make_cpu_backend(1);
  const auto self = make_self_comm(backend->queue());
  Arena arena(backend->queue(), backend->memory());
  ShardedState state(*backend, arena, make_test_units(), *self, *self, {});
  fill_masters(state);
  arena.begin("look");
  const UnitView layer = state.use(1);
  layer[0].expect({11});
  layer[1].expect({6, 11});
  BOOST_TEST(std::string(layer[1].name) == "q");
  const Tensor qkv = layer.joined(1, 3);
  qkv.expect({12, 11});
  const std::vector<Parameter>& p = state.units()[1].parameters;
  BOOST_TEST(value(qkv, 6 * 11 + 4) == weight_of(p[2], 4));
  BOOST_TEST(value(qkv, 9 * 11 + 1) == weight_of(p[3], 1));
  const Tensor bias = layer.joined(4, 2);
  bias.expect({7});
  BOOST_TEST(value(bias, 6) == weight_of(p[5], 1));
  BOOST_CHECK_THROW(layer.joined(0, 2), Error);  // a gap in between
  BOOST_CHECK_THROW(layer.joined(3, 2), Error);  // a matrix and a vector
  BOOST_CHECK_THROW(layer.joined(5, 2), Error);  // beyond the unit
  state.drop(1);
}

BOOST_AUTO_TEST_CASE(state_of_one_rank_is_its_own_view) {
  const auto backend = make_cpu_backend(1);
  const auto self = make_self_comm(backend->queue());
  Arena arena(backend->queue(), backend->memory());
  ShardedState state(*backend, arena, make_test_units(), *self, *self, {});
  arena.begin("micro");
  BOOST_TEST(state.use(0).flat().data == state.state(0).master.data);
  BOOST_TEST(state.open_gradient(0).flat().data == state.state(0).grad.data);
  state.open_gradient(0)[0].as<float>()[5] = 2;
  state.reduce(0);
  BOOST_TEST(state.open_gradient(0)[0].as<float>()[5] == 2.f);  // accumulates
  state.reduce(0);
  state.drop(0);
  BOOST_TEST(arena.layout().pool_bytes == 0);
}

BOOST_AUTO_TEST_CASE(frozen_units_have_weights_alone) {
  const auto backend = make_cpu_backend(1);
  const auto self = make_self_comm(backend->queue());
  Arena arena(backend->queue(), backend->memory());
  ShardedState state(*backend, arena, make_test_units(), *self, *self, {.compute = DType::bf16});
  BOOST_TEST((state.state(2).master.dtype == DType::bf16));
  BOOST_TEST((!state.state(2).grad && !state.state(2).m && !state.state(2).v));
  arena.begin("micro");
  BOOST_TEST((state.trains(0) && !state.trains(2)));
  BOOST_TEST(!state.open_gradient(2)[0]);  // null: nobody computes it
  state.reduce(2);
  BOOST_TEST(arena.layout().phases.at("micro").empty());
  BOOST_CHECK_THROW(state.reduce(0), Error);
  BOOST_CHECK_THROW(state.drop(0), Error);
}

BOOST_AUTO_TEST_CASE(state_starts_afresh_after_an_abandoned_phase) {
  const auto backend = make_cpu_backend(1);
  const auto self = make_self_comm(backend->queue());
  Arena arena(backend->queue(), backend->memory());
  ShardedState state(*backend, arena, make_test_units(), *self, *self,
                     {.compute = DType::bf16, .gradients = DType::bf16});
  fill_masters(state);
  arena.begin("micro");
  state.prefetch(1);
  state.open_gradient(1);
  state.abandon();
  arena.abandon();
  arena.begin("micro");
  check_gathered(state.units()[1], state.use(1).flat());
  BOOST_TEST(state.open_gradient(1)[1].as<float>()[3] == 0.f);
  state.reduce(1);
  state.drop(1);
}

BOOST_AUTO_TEST_CASE(experts_are_held_in_parts_1) {
  experts_are_held_in_parts();
}
BOOST_AUTO_TEST_CASE(experts_are_held_in_parts_3, *boost::unit_test::label("ranks3")) {
  experts_are_held_in_parts();
}
BOOST_AUTO_TEST_CASE(experts_are_held_in_parts_4, *boost::unit_test::label("ranks4")) {
  experts_are_held_in_parts();
}

BOOST_AUTO_TEST_SUITE_END()
