// A rehearsal's spot checks: the attention of a pretended ring against double precision, and an error found.
#include "train/rehearsal.h"
#include <boost/test/unit_test.hpp>
#include <cmath>
#include "support/refusal.h"
#include "train/memory_plan.h"
#include "train/planning.h"
#include "train/trained.h"

using namespace annulus;
using namespace annulus::test;

namespace {

struct Seat {
  const char* model;
  int ranks, rank, ulysses;
  std::int64_t sequence;
  std::vector<std::string> more;
};
// A ring of one takes any row, and every member of a ring has its own
// positions. Rows that chunks divide, and rows that they do not.
const Seat kSeats[] = {{"qwen3", 1, 0, 1, 101, {}},
                       {"qwen3", 2, 1, 1, 203, {}},
                       {"qwen3", 4, 0, 1, 403, {"--memory.attention_groups", "2"}},
                       {"qwen3", 8, 7, 1, 512, {"--memory.keep_attention", "false"}},
                       {"packed", 8, 5, 2, 419, {}},
                       {"packed", 4, 3, 4, 257, {"--optimizer.offload", "true"}}};

EngineSpec spec_of(const Seat& p) {
  std::vector<std::string> flags = {"--data.sequence", std::to_string(p.sequence), "--data.packing", "none"};
  flags.insert(flags.end(), p.more.begin(), p.more.end());
  const RunConfig run = tiny_run(p.model, flags);
  EngineSpec spec =
      make_spec(model_config_of(run), run, make_grid(p.rank, p.ranks, p.ranks, p.ulysses), DType::f32);
  spec.probe = true;
  return spec;
}

const Node kNode{.host = "here", .index = 0, .local_rank = 0, .local_size = 1};

}  // namespace

BOOST_AUTO_TEST_SUITE(train)

BOOST_AUTO_TEST_CASE(attention_at_its_length_is_that_of_double_precision) {
  const auto backend = make_cpu_backend(1);
  const auto self = make_self_comm(backend->queue());
  const Peers alone{.started = *self, .pretended = true};
  for (const Seat& seat : kSeats) {
    const EngineSpec spec = spec_of(seat);
    const RehearsalReport report =
        rehearse(*backend, spec, kNode, alone, {.warmup = 0, .steps = 1, .check = 17});
    BOOST_REQUIRE(report.check.has_value());
    const SpotCheck& c = *report.check;
    BOOST_TEST(c.queries == 17);
    BOOST_TEST(c.keys == 17);
    BOOST_TEST(c.seen > 17);
    BOOST_TEST_INFO_SCOPE(seat.model << " rank " << seat.rank << " of " << seat.ranks << ": " << describe(c));
    // The largest seen is 1e-6 of the largest value.
    for (const SpotCheck::Error& e : {c.o, c.lse, c.dq, c.dk, c.dv}) {
      BOOST_TEST(e.largest > 0);
      BOOST_TEST(e.worst <= 3e-6 * e.largest);
    }
    BOOST_TEST(describe(report, spec, 0).find("in f64") != std::string::npos);
    BOOST_TEST(report.peak_bytes == report.planned_bytes);
  }
}

BOOST_AUTO_TEST_CASE(a_spot_check_finds_an_error) {
  const auto backend = make_cpu_backend(1);
  EngineSpec spec = spec_of(kSeats[2]);
  Engine engine(*backend, make_loopback_groups(*backend, spec.grid, kNode, "world"),
                std::make_unique<Arena>(backend->queue(), backend->memory()), spec, [] {});
  LocalRow row = plain_row(spec);
  const auto whole = static_cast<std::size_t>(row.map.local_tokens());
  row.ids.resize(whole), row.targets.resize(whole), row.positions.resize(whole);
  for (std::size_t i = 0; i < whole; ++i) {
    row.ids[i] = static_cast<std::int32_t>(i * i * 7 % 89),
    row.targets[i] = static_cast<std::int32_t>(i * 11 % 89);
    row.positions[i] = static_cast<std::int64_t>(i);
  }
  for (int u = 0; u < static_cast<int>(engine.state().units().size()); ++u) {
    const Tensor& w = engine.state().state(u).master;
    for (std::int64_t i = 0; i < w.size(); ++i)
      w.as<float>()[i] = 0.1f * static_cast<float>(std::sin(0.7 * static_cast<double>(i * i % 1009)));
  }
  std::int64_t looked = 0;
  engine.probe(row, 0.01, [&](const AttentionTensors& t) {
    const double scale = 1.0 / std::sqrt(static_cast<double>(spec.model.D));
    const auto check = [&] { return spot_check(*backend, t, spec.grid.ring_index, scale, t.q.shape[0]); };
    const SpotCheck right = check();
    // One value of each tensor, wrong by a tenth of the largest.
    const auto spoiled = [&](const Tensor& x, std::int64_t i, SpotCheck::Error SpotCheck::*error) {
      float& value = x.as<float>()[i];
      const float was = value;
      value += static_cast<float>(0.1 * (right.*error).largest);
      const SpotCheck::Error found = check().*error;
      value = was;
      BOOST_TEST(found.worst > 0.09 * found.largest);
      ++looked;
    };
    BOOST_TEST(right.dk.worst <= 3e-6 * right.dk.largest);
    spoiled(t.o, t.o.size() - 1, &SpotCheck::o);
    spoiled(t.lse, 5, &SpotCheck::lse);
    spoiled(t.dq, 0, &SpotCheck::dq);
    spoiled(t.dkv, t.dkv.size() / 2 - 1, &SpotCheck::dk);
    spoiled(t.dkv, t.dkv.size() - 1, &SpotCheck::dv);
  });
  BOOST_TEST(looked == 5);
}

BOOST_AUTO_TEST_CASE(a_spot_check_refuses_rows_whose_keys_stop_early) {
  const auto backend = make_cpu_backend(1);
  const auto self = make_self_comm(backend->queue());
  const Peers alone{.started = *self, .pretended = true};
  check_refused(Exit::usage, {"--check", "--document"}, [&] {
    rehearse(*backend, spec_of(kSeats[3]), kNode, alone,
             {.warmup = 0, .steps = 1, .document = 50, .check = 3});
  });
}

namespace {

/// The same job on one process and on all that were started: one model, one row, one loss, one norm.
void check_real_peers(const std::string& model, const std::vector<std::string>& flags) {
  const auto backend = make_cpu_backend(1);
  const auto world = session().world(backend->queue());
  const auto self = make_self_comm(backend->queue());
  const RunConfig run = tiny_run(model, flags);
  const auto spec_for = [&](const Comm& ranks) {
    ParallelSection layout = run.parallel;
    layout.context = ranks.size();
    return make_spec(model_config_of(run), run, make_grid(ranks.rank(), ranks.size(), layout), DType::f32);
  };
  const RehearsalOptions options{.warmup = 0, .steps = 2, .profile = true};
  const RehearsalReport one = rehearse(*backend, spec_for(*self), kNode, {.started = *self}, options);
  const EngineSpec spec = spec_for(*world);
  const Node node{.host = "here", .index = 0, .local_rank = world->rank(), .local_size = world->size()};
  const RehearsalReport all = rehearse(*backend, spec, node, {.started = *world}, options);
  BOOST_TEST(all.loss == one.loss, boost::test_tools::tolerance(1e-5));
  BOOST_TEST(all.grad_norm == one.grad_norm, boost::test_tools::tolerance(1e-5));
  BOOST_TEST(all.flops == one.flops);
  BOOST_TEST(all.parameters == one.parameters);
  BOOST_TEST_REQUIRE(all.ranks.size() == static_cast<std::size_t>(world->size()));
  for (int r = 0; r < world->size(); ++r) {
    const RankFigures& f = all.ranks[static_cast<std::size_t>(r)];
    BOOST_TEST(f.rank == r);
    BOOST_TEST((f.seconds > 0 && f.seconds <= all.median() * 1.0001));
    BOOST_TEST(f.peak_bytes <= all.peak_bytes);
  }
  BOOST_TEST(all.peak_bytes < one.peak_bytes);
  // Every shift round the ring, and each of them sent something.
  const OpTime& ring = all.profile.transfers.at("exchange on ring");
  BOOST_TEST((ring.calls > 0 && ring.bytes > ring.calls));
  const std::string text = describe(all, spec, 0);
  BOOST_TEST(text.find("gradient norm") != std::string::npos);
  BOOST_TEST(text.find("\n  mean ") != std::string::npos);
  BOOST_TEST(rehearsal_json(all, spec, 1e12).find("\"pretended\":false") != std::string::npos);
}

}  // namespace

BOOST_AUTO_TEST_CASE(two_real_peers_rehearse_one_job, *boost::unit_test::label("ranks2")) {
  check_real_peers("qwen3", {"--data.sequence", "151"});
}

BOOST_AUTO_TEST_CASE(three_real_peers_rehearse_one_job, *boost::unit_test::label("ranks3")) {
  check_real_peers("window", {"--data.sequence", "203", "--memory.attention_groups", "1"});
}

/// Two ranks of five side by side, each with its own place in the pretended ring.
BOOST_AUTO_TEST_CASE(pretended_ranks_rehearse_side_by_side, *boost::unit_test::label("ranks2")) {
  const auto backend = make_cpu_backend(1);
  const auto world = session().world(backend->queue());
  const RunConfig run = tiny_run("qwen3", {"--data.sequence", "211", "--parallel.context", "5"});
  const int rank = 2 + world->rank();
  const EngineSpec spec = make_spec(model_config_of(run), run, make_grid(rank, 5, run.parallel), DType::f32);
  const RehearsalReport r = rehearse(*backend, spec, pretended_node(rank, 5, 8),
                                     {.started = *world, .pretended = true}, {.warmup = 0, .steps = 1});
  BOOST_TEST_REQUIRE(r.ranks.size() == 2u);
  BOOST_TEST((r.ranks[0].rank == 2 && r.ranks[1].rank == 3));
  BOOST_TEST(r.ranks[0].waited == 0);
  BOOST_TEST(describe(r, spec, 0).find("gradient norm") == std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
