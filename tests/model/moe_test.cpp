// Layers of experts: the same numbers whatever the memory options, the tiles, the order of lanes and the
// ranks that share experts and rows.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include "model/rig.h"
#include "support/backends.h"
#include "support/lazy_backend.h"
#include "support/world.h"

using namespace annulus;
using namespace annulus::test;

namespace {

/// Layers with experts, without, with.
ModelConfig with_experts(std::int64_t E, std::int64_t K, bool normalize = true) {
  ModelConfig c = tiny_config();
  c.E = E;
  c.K = K;
  c.Fe = 17;
  c.sparse = {1, 0, 1};
  c.normalize_topk = normalize;
  return c;
}

RigOptions options_of(std::int64_t E = 12, std::int64_t K = 3) {
  RigOptions o{.config = with_experts(E, K)};
  o.model.expert_tile = 10;
  return o;
}

/// Experts frozen, with adapters on them, on a dense layer's projections and on the attention.
RigOptions adapted() {
  RigOptions o = options_of();
  o.model.lora = {
      .rank = 5,
      .alpha = 7,
      .targets = {Target::q, Target::o, Target::up, Target::experts_gate_up, Target::experts_down}};
  return o;
}

void check_close(const Outcome& got, const Outcome& want) {
  BOOST_TEST(std::abs(got.totals.nll - want.totals.nll) <= 1e-6 * want.totals.nll);
  BOOST_TEST(std::abs(got.totals.router.aux - want.totals.router.aux) <= 1e-6 * want.totals.router.aux);
  BOOST_TEST(std::abs(got.totals.router.load_max - want.totals.router.load_max) <= 1e-12);
  const double worst = worst_leaf(got.gradients, want.gradients);
  BOOST_TEST(worst <= 1e-5, "worst leaf " << worst);
}

/// Rows on one rank, then on all in every layout that `context` and `expert` give.
void compare_layouts(const RigOptions& given) {
  Backend* const backend = &tested();
  const auto world = session().world(backend->queue());
  constexpr int kRows = 4;
  std::vector<WholeRow> rows;
  for (int i = 0; i < kRows; ++i)
    rows.push_back(i == 3 ? make_row(kTinySequence, {5}, 101, 30)
                          : make_row(kTinySequence, kTinyDocuments, 101, static_cast<std::uint64_t>(31 + i)));
  const auto alone_backend = make_cpu_backend(1);
  Rig one(*alone_backend, make_self_comm(alone_backend->queue()), given);
  double nll = 0, aux = 0;
  for (const WholeRow& row : rows) {
    const RowTotals t = one.train(row, kTinyScale, kTinyAux);
    nll += t.nll;
    aux += t.router.aux;
  }
  const Gradients want = one.gradients();
  for (int context = 1; context <= world->size(); ++context)
    for (int expert = 1; expert <= world->size(); ++expert)
      for (const int per_member : {1, 3}) {
        if (world->size() % context != 0 || world->size() % expert != 0) continue;
        RigOptions options = given;
        options.context = context;
        options.expert = expert;
        options.per_member = per_member;
        options.model.imbalance = per_member == 1 ? 1.25 : 1.0;
        options.model.recompute = per_member == 1;
        options.model.lean_backward = per_member == 1;
        Rig rig(*backend, world->split(0), options);
        double sums[2] = {};
        for (int first = 0; first < kRows; first += rig.grid().data) {
          const int i =
              first + rig.grid().data_index;  // a group without a row enters every tile all the same
          const WholeRow row =
              i < kRows ? rows[static_cast<std::size_t>(i)] : make_row(kTinySequence, {}, 101, 0);
          const RowTotals t = rig.train(row, kTinyScale, kTinyAux);
          sums[0] += t.nll;
          sums[1] += t.router.aux;
        }
        world->all_reduce(std::span<double>(sums));
        BOOST_TEST_INFO("context " << context << " expert " << expert << " chunks " << per_member);
        BOOST_TEST(std::abs(sums[0] / context - nll) <= 1e-6 * nll);
        BOOST_TEST(std::abs(sums[1] / context - aux) <= 1e-6 * aux);
        BOOST_TEST(worst_leaf(rig.gradients(), want) <= 1e-5);
      }
}

/// The loss of document 2, [20, 43), when an input token of it or of another one is changed.
void perturb() {
  Backend* const backend = &tested();
  const auto world = session().world(backend->queue());
  for (int expert = 1; expert <= world->size(); ++expert) {
    if (world->size() % expert != 0) continue;
    RigOptions options = options_of();
    options.context = world->size();
    options.expert = expert;
    Rig rig(*backend, world->split(0), options);
    const auto loss_of = [&](std::int64_t changed) {
      WholeRow row = make_row(kTinySequence, kTinyDocuments, 101, 21);
      for (std::int64_t p = 0; p < row.shape.used; ++p)
        if (p < 20 || p >= 43) row.targets[static_cast<std::size_t>(p)] = -1;
      if (changed >= 0) {
        std::int32_t& id = row.ids[static_cast<std::size_t>(changed)];
        id = (id + 1) % 101;
      }
      return rig.eval(row).nll;
    };
    const double loss = loss_of(-1);
    // Other tokens share its experts' products, whose rows then stand elsewhere: equal to rounding.
    for (std::int64_t p : {0, 18, 19, 43}) BOOST_TEST(std::abs(loss_of(p) - loss) <= 1e-6 * loss);
    for (std::int64_t p : {20, 30, 41}) BOOST_TEST(std::abs(loss_of(p) - loss) > 1e-5 * loss);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(model)

BOOST_AUTO_TEST_CASE(units_of_experts_follow_all_others) {
  const ModelConfig c = with_experts(12, 3);
  const std::vector<Unit> units = make_units(c);
  BOOST_TEST(units.size() == std::size_t(c.L + 2 + 2));
  BOOST_TEST((experts_unit(c, 0) == c.L + 2 && experts_unit(c, 2) == c.L + 3));
  BOOST_CHECK_THROW(experts_unit(c, 1), Error);
  const Unit& last = units.back();
  BOOST_TEST((last.owners == Owners::experts));
  BOOST_TEST(last.parameters[0].name == "model.layers.2.mlp.experts.gate_up_proj");
  BOOST_TEST((last.parameters[0].shape == std::vector<std::int64_t>{12, 34, 37}));
  BOOST_TEST((last.parameters[1].shape == std::vector<std::int64_t>{12, 37, 17}));
  std::int64_t all = 0;
  for (const Unit& unit : units)
    for (const Parameter& p : unit.parameters) {
      BOOST_TEST((p.name.find("mlp.gate_proj") == std::string::npos ||
                  p.name.find("layers.1.") != std::string::npos),
                 p.name);
      all += p.size();
    }
  BOOST_TEST(all == c.parameters());
}

BOOST_AUTO_TEST_CASE(memory_options_change_no_bit_with_experts) {
  RigOptions options = options_of();
  options.model.recompute = false;
  const Outcome want = train_two_rows(options);
  BOOST_TEST(want.totals.nll > 0);
  BOOST_TEST(want.totals.router.aux >= 3.0);  // balanced: K for each row
  for (const auto& [name, g] : want.gradients)
    BOOST_TEST(std::any_of(g.begin(), g.end(), [](float x) { return x != 0; }), name);
  for (const bool recompute : {false, true})
    for (const bool keep : {false, true})
      for (const bool lean : {false, true})
        for (const std::int64_t offload : {0, 1, 3}) {
          options.model.recompute = recompute;
          options.model.keep_attention = keep;
          options.model.lean_backward = lean;
          options.model.offload_layers = offload;
          const Outcome got = train_two_rows(options);
          BOOST_TEST_INFO("recompute " << recompute << " keep " << keep << " lean " << lean << " offload "
                                       << offload);
          BOOST_TEST(same(got.totals, want.totals));
          BOOST_TEST((got.gradients == want.gradients));
        }
}

BOOST_AUTO_TEST_CASE(units_of_experts_adapters_are_the_last) {
  const RigOptions options = adapted();
  const ModelConfig& c = options.config;
  const LoraConfig& lora = options.model.lora;
  const std::vector<Unit> units = make_units(c, lora);
  BOOST_TEST(units.size() == std::size_t(base_units(c) + c.L + 2));
  BOOST_TEST((expert_units(c, lora, 2) == std::vector{experts_unit(c, 2), base_units(c) + int(c.L) + 1}));
  const Unit& last = units.back();
  BOOST_TEST((last.owners == Owners::experts && is_trained(last)));
  const std::string name = "base_model.model.model.layers.2.mlp.experts.";
  BOOST_TEST(last.parameters[0].name == name + "base_layer.lora_A.weight");
  BOOST_TEST((last.parameters[0].shape == std::vector<std::int64_t>{12, 5, 37}));
  BOOST_TEST((last.parameters[1].shape == std::vector<std::int64_t>{12, 34, 5}));
  BOOST_TEST(last.parameters[2].name == name + "lora_A.weight");
  BOOST_TEST((last.parameters[3].shape == std::vector<std::int64_t>{12, 37, 5}));
  BOOST_TEST(last.parameters[0].init_bound == static_cast<float>(1 / std::sqrt(37.0)));
  // A layer without adapters of its own has no unit for them: the dense one, when experts alone are adapted.
  LoraConfig experts = lora;
  experts.targets = {Target::experts_down};
  BOOST_TEST(make_units(c, experts).size() == std::size_t(base_units(c) + 2));
  BOOST_TEST((layer_units(c, experts, 1) == std::vector{layer_unit(1)}));
  BOOST_TEST((expert_units(c, experts, 2) == std::vector{experts_unit(c, 2), base_units(c) + 1}));
}

BOOST_AUTO_TEST_CASE(memory_options_change_no_bit_with_adapters_of_experts) {
  RigOptions options = adapted();
  options.model.recompute = false;
  const Outcome want = train_two_rows(options);
  BOOST_TEST(want.gradients.size() == 2u * (3 * 2 + 1 + 2 * 2));
  for (const auto& [name, g] : want.gradients)
    BOOST_TEST(std::any_of(g.begin(), g.end(), [](float x) { return x != 0; }), name);
  for (const bool recompute : {false, true})
    for (const bool lean : {false, true})
      for (const std::int64_t offload : {0, 3}) {
        options.model.recompute = recompute;
        options.model.lean_backward = lean;
        options.model.offload_layers = offload;
        const Outcome got = train_two_rows(options),
                      planned = train_two_rows(options, plan_of_rows(options, 1));
        BOOST_TEST_INFO("recompute " << recompute << " lean " << lean << " offload " << offload);
        BOOST_TEST((same(got.totals, want.totals) && same(planned.totals, want.totals)));
        BOOST_TEST((got.gradients == want.gradients));
        BOOST_TEST((planned.gradients == want.gradients));
      }
  options.model.expert_tile = 7;
  check_close(train_two_rows(options), want);
}

BOOST_AUTO_TEST_CASE(tiles_of_experts_change_sums_in_their_last_digits_alone) {
  for (const auto& [E, K] : {std::pair<std::int64_t, std::int64_t>{12, 3}, {5, 1}, {4, 4}}) {
    RigOptions options = options_of(E, K);
    options.model.expert_tile = 0;
    const Outcome want = train_two_rows(options);
    for (const std::int64_t tile : {1, 7, 48, 1000}) {
      options.model.expert_tile = tile;
      BOOST_TEST_INFO("experts " << K << " of " << E << ", tile " << tile);
      check_close(train_two_rows(options), want);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_planned_arena_gives_what_a_loose_one_gives_with_experts) {
  for (const bool recompute : {false, true}) {
    RigOptions options = options_of();
    options.model.recompute = recompute;
    options.model.offload_layers = 2;
    const Outcome want = train_two_rows(options), got = train_two_rows(options, plan_of_rows(options, 1));
    BOOST_TEST(same(got.totals, want.totals));
    BOOST_TEST((got.gradients == want.gradients));
  }
}

// As for dense layers: work that runs late in a pool whose places change hands. Pretended peers send what
// this rank sends itself.
BOOST_AUTO_TEST_CASE(lanes_of_experts_may_run_in_any_order, *boost::unit_test::label("slow")) {
  struct Spread {
    int ranks, context, expert;
    bool with_adapters = false;
  };
  for (const auto [ranks, context, expert, with_adapters] :
       {Spread{1, 1, 1}, Spread{4, 1, 2}, Spread{4, 2, 4}, Spread{4, 4, 1}, Spread{4, 2, 2, true}})
    for (const bool lean : {false, true}) {
      RigOptions options = with_adapters ? adapted() : options_of();
      options.context = context;
      options.expert = expert;
      options.model.lean_backward = lean;
      options.model.offload_layers = options.config.L;
      const auto real = make_cpu_backend(1);
      const auto world = [&, n = ranks] { return make_loopback_comm(real->queue(), 0, n); };
      const Outcome want = train_two_rows(*real, world(), options);
      const Layout layout = plan_of_rows(options, ranks);
      for (int order = 0; order < kLanes + 3; ++order) {
        LazyBackend late(*real, static_cast<Lane>(order % kLanes),
                         static_cast<std::uint64_t>(order / kLanes * order));
        const Outcome got = train_two_rows(late, world(), options, layout);
        BOOST_TEST_INFO("ranks " << ranks << " context " << context << " expert " << expert << " lean "
                                 << lean << " order " << order);
        BOOST_TEST(same(got.totals, want.totals));
        BOOST_TEST((got.gradients == want.gradients));
      }
    }
}

BOOST_AUTO_TEST_CASE(a_stop_at_any_layer_edge_leaves_experts_that_still_work) {
  const auto backend = make_cpu_backend(1);
  RigOptions options = options_of();
  options.model.offload_layers = 2;
  int edges = 0, stop_at = -1;
  options.model.at_layer = [&] {
    if (edges++ == stop_at) usage_error("stopped.");
  };
  const WholeRow row = make_row(kTinySequence, kTinyDocuments, options.config.V, 6);
  Rig rig(*backend, make_self_comm(backend->queue()), options);
  const RowTotals want = rig.train(row, 1.0, kTinyAux);
  const Gradients gradients = rig.gradients();
  const int all = edges;
  for (stop_at = 0; stop_at < all; ++stop_at) {
    edges = 0;
    BOOST_CHECK_THROW(rig.train(row, 1.0, kTinyAux), Error);
    rig.model().abandon();
    rig.zero_gradients();
    edges = all;
    BOOST_TEST(same(rig.train(row, 1.0, kTinyAux), want));
    BOOST_TEST((rig.gradients() == gradients));
  }
}

BOOST_AUTO_TEST_CASE(padding_is_not_routed) {
  const auto backend = make_cpu_backend(1);
  Rig rig(*backend, make_self_comm(backend->queue()), options_of());
  const RowTotals t = rig.train(make_row(kTinySequence, {}, 101, 0), 1.0, 1.0);
  BOOST_TEST(same(t, {}));
  for (const auto& [name, g] : rig.gradients())
    for (float x : g) BOOST_REQUIRE_MESSAGE(x == 0, name);
}

BOOST_AUTO_TEST_CASE(layouts_of_experts_agree_2, *boost::unit_test::label("ranks2")) {
  compare_layouts(options_of());
  compare_layouts(adapted());
}
BOOST_AUTO_TEST_CASE(layouts_of_experts_agree_3, *boost::unit_test::label("ranks3")) {
  compare_layouts(options_of());
  compare_layouts(adapted());
}
BOOST_AUTO_TEST_CASE(layouts_of_experts_agree_4, *boost::unit_test::label("ranks4")) {
  compare_layouts(options_of());
  compare_layouts(adapted());
}
BOOST_AUTO_TEST_CASE(a_changed_token_moves_what_sees_it_alone_through_experts) {
  perturb();
}
BOOST_AUTO_TEST_CASE(a_changed_token_moves_what_sees_it_alone_through_experts_4,
                     *boost::unit_test::label("ranks4")) {
  perturb();
}

BOOST_AUTO_TEST_SUITE_END()
