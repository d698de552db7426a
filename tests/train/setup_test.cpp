// Memory counted before it is taken, rope overrides, weights that do not fit the model.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include "ops/cpu/queue.h"
#include "support/data.h"
#include "support/refusal.h"
#include "train/memory_plan.h"
#include "train/trained.h"
#include "train/weights_fill.h"

using namespace annulus;
using namespace annulus::test;

namespace {

EngineSpec spec_of(const RunConfig& run) {
  return make_spec(model_config_of(run), run, make_grid(0, 4, static_cast<int>(run.parallel.context), 1),
                   DType::f32);
}

const Node kNode{.host = "here", .index = 0, .local_rank = 0, .local_size = 4};

}  // namespace

BOOST_AUTO_TEST_SUITE(train)

BOOST_AUTO_TEST_CASE(memory_is_counted_by_region) {
  const auto cpu = make_cpu_backend(1);
  const EngineSpec spec = spec_of(tiny_run("qwen3", {"--parallel.context", "4", "--data.sequence", "1001"}));
  const Layout layout = plan_memory(spec, kNode, Place::host, &cpu->ops(), true);
  const std::int64_t parameters = spec.model.parameters();
  const auto bytes = [&](Region r) { return layout.region_bytes[static_cast<int>(r)]; };
  // A quarter of f32 masters, of gradients and of two moments; pieces are rounded up.
  BOOST_TEST(bytes(Region::optimizer) >= 2 * parameters);
  BOOST_TEST(bytes(Region::optimizer) < 3 * parameters);
  BOOST_TEST(layout.total_bytes() == layout.kept_bytes() + layout.pool_bytes);
  BOOST_TEST(layout.pool_bytes >= layout.live_bytes);
  for (const char* phase : {"micro", "update", "eval"}) BOOST_TEST(layout.phases.count(phase) == 1u, phase);
  // Longer rows need more, and only temporaries.
  EngineSpec longer = spec;
  longer.run.data.sequence = longer.options.sequence = 2002;
  const Layout more = plan_memory(longer, kNode, Place::host, &cpu->ops(), true);
  BOOST_TEST(more.kept_bytes() == layout.kept_bytes());
  BOOST_TEST(more.pool_bytes > layout.pool_bytes);
  // Evaluation alone holds no gradients and no moments.
  EngineSpec frozen = spec;
  frozen.frozen = true;
  const Layout less = plan_memory(frozen, kNode, Place::host, &cpu->ops(), true);
  BOOST_TEST(less.region_bytes[static_cast<int>(Region::optimizer)] == 0);
  BOOST_TEST(less.phases.count("micro") == 0u);
}

BOOST_AUTO_TEST_CASE(experts_are_shared_by_ranks_that_divide_them) {
  const auto refused = [](const std::string& model, int ranks, int expert, std::vector<std::string> parts) {
    const RunConfig run = tiny_run(model, {"--parallel.expert", std::to_string(expert)});
    check_refused(Exit::usage, parts, [&] {
      make_spec(model_config_of(run), run, make_grid(0, ranks, run.parallel), DType::f32);
    });
  };
  refused("moe", 4, 3, {"parallel.expert = 3", "4 ranks"});
  refused("moe", 3, 3, {"parallel.expert is 3", "8 experts"});
  refused("qwen3", 2, 2, {"parallel.expert is 2", "no experts", "qwen3"});
}

BOOST_AUTO_TEST_CASE(the_auxiliary_loss_is_the_models_own_unless_told) {
  const auto coefficient = [](const std::string& model, std::vector<std::string> flags,
                              std::int64_t lora = 0) {
    RunConfig run = tiny_run(model, flags);
    run.lora.rank = lora;
    return make_spec(model_config_of(run), run, make_grid(0, 1, run.parallel), DType::f32).aux_coefficient;
  };
  BOOST_TEST(coefficient("moe", {"--moe.aux_coefficient", "-1"}) == 0.001);
  BOOST_TEST(coefficient("moe", {"--moe.aux_coefficient", "0"}) == 0.0);
  BOOST_TEST(coefficient("moe", {"--moe.aux_coefficient", "0.5"}) == 0.5);
  BOOST_TEST(coefficient("moe", {"--moe.aux_coefficient", "-1"}, 8) == 0.0);  // a frozen router
  BOOST_TEST(coefficient("moe", {"--moe.aux_coefficient", "0.5"}, 8) == 0.5);
  BOOST_TEST(coefficient("qwen3", {"--moe.aux_coefficient", "0.5"}) == 0.0);
}

/// Qwen3-30B-A3B at a million tokens on 8 ranks: what one holds.
BOOST_AUTO_TEST_CASE(experts_are_counted_in_the_plan, *boost::unit_test::label("slow")) {
  RunConfig run = tiny_run("moe", {"--data.sequence", "1M", "--parallel.context", "8", "--parallel.expert",
                                   "8", "--optimizer.state", "f32"});
  ModelConfig c = model_config_of(run);
  c.C = 2048, c.F = 6144, c.V = 151936, c.L = 48, c.H = 32, c.G = 4, c.D = 128;
  c.E = 128, c.K = 8, c.Fe = 768;
  c.windows.assign(48, 0);
  c.sparse.assign(48, 1);
  BOOST_TEST(c.parameters() == 30'532'122'624);
  const Node node{.host = "here", .index = 0, .local_rank = 3, .local_size = 8};
  const auto plan = [&](const RunConfig& r) {
    const EngineSpec spec = make_spec(c, r, make_grid(3, 8, r.parallel), DType::bf16);
    return plan_memory(spec, node, Place::device, nullptr, false);
  };
  const auto largest = [](const Layout& layout, const std::string& name) {
    std::int64_t bytes = 0;
    for (const Tenant& t : layout.phases.at("micro"))
      if (name == t.name) bytes = std::max(bytes, t.bytes);
    return bytes;
  };
  const Layout shared = plan(run);
  // Two f32 moments of an eighth of the parameters, pieces rounded up.
  const std::int64_t moments = shared.region_bytes[static_cast<int>(Region::optimizer)];
  BOOST_TEST(moments >= c.parameters());
  BOOST_TEST(moments < c.parameters() + c.parameters() / 100);
  // Buffers grow with the imbalance that they are made for.
  run.moe.imbalance = 2.5;
  const Layout uneven = plan(run);
  for (const char* name : {"expert rows", "expert gate_up"})
    BOOST_TEST(
        std::abs(static_cast<double>(largest(uneven, name)) / static_cast<double>(largest(shared, name)) -
                 2) < 0.01);
  BOOST_TEST(largest(uneven, "travelling rows") > largest(shared, "travelling rows"));
  // One that holds a layer's experts alone gathers them all, in bf16; else the head is the largest unit.
  run.parallel.expert = 1;
  BOOST_TEST(largest(plan(run), "gathered unit") == 2 * 128 * 3 * 2048 * 768);
  BOOST_TEST(largest(shared, "gathered unit") == 2 * (151936 + 1) * 2048);
}

BOOST_AUTO_TEST_CASE(long_rows_run_attention_in_groups) {
  const auto spec_for = [](std::int64_t tokens, int ranks, int ulysses, std::int64_t groups) {
    RunConfig run = parse_run_config({"--model.path", test_data("bench/models/qwen3-8b"), "--model.init",
                                      "random", "--data.packing", "wrapped"});
    run.data.sequence = tokens;
    run.memory.attention_groups = groups;
    return make_spec(model_config_of(run), run, make_grid(0, ranks, ranks, ulysses), DType::bf16);
  };
  const auto settled = [&](std::int64_t tokens, int ranks, int ulysses) {
    return spec_for(tokens, ranks, ulysses, 0).run.memory.attention_groups;
  };
  BOOST_TEST(settled(131'072, 1, 1) == 1);
  BOOST_TEST(settled(524'288, 8, 1) == 1);
  BOOST_TEST(settled(1'048'576, 8, 1) == 2);
  BOOST_TEST(settled(1'048'576, 8, 2) == 2);  // half the heads of twice the tokens
  BOOST_TEST(settled(1'048'576, 8, 4) == 2);
  BOOST_TEST(settled(4'194'304, 8, 1) == 8);
  // At a million tokens on 8 ranks what travels and what is summed shrinks by more than a gigabyte.
  const auto bytes = [&](std::int64_t groups) {
    return plan_memory(spec_for(1'048'576, 8, 1, groups), kNode, Place::device, nullptr, false).total_bytes();
  };
  BOOST_TEST(bytes(1) - bytes(0) > 1'000'000'000);
  check_refused(Exit::usage, {"memory.attention_groups is 3", "8 key/value heads"},
                [&] { spec_for(1000, 1, 1, 3); });
  check_refused(Exit::usage, {"parallel.ulysses is 6", "32 query heads"}, [&] { spec_for(1000, 6, 6, 0); });
}

BOOST_AUTO_TEST_CASE(a_job_that_cannot_fit_names_figures_and_lever) {
  const auto cpu = make_cpu_backend(1);
  CpuQueue queue;
  const auto self = make_self_comm(queue);
  EngineSpec spec = spec_of(tiny_run("qwen3", {"--data.sequence", "4001", "--memory.loss_tile", "4096"}));
  const std::int64_t bytes = plan_memory(spec, kNode, Place::host, &cpu->ops(), false).total_bytes();
  const auto check = [&](std::int64_t free) {
    check_host_memory(*self, spec, kNode, &cpu->ops(), false, bytes, free);
  };
  check(4 * bytes);
  check_refused(Exit::environment, {"does not fit", "host here", "GB", "4 ranks", "memory.", "would need"},
                [&] { check(4 * (bytes - 1)); });
  check_refused(Exit::environment, {"does not fit", "more hosts", "data.sequence"}, [&] { check(4000); });
  BOOST_TEST(host_bytes_free() > 1'000'000);
}

BOOST_AUTO_TEST_CASE(rope_overrides_go_where_the_file_has_them) {
  ModelSection m;
  BOOST_TEST(with_overrides("{ \"a\": 1 }", m, "x") == "{ \"a\": 1 }");
  m.rope_type = "yarn";
  m.rope_factor = 4;
  m.rope_original_positions = 32768;
  auto j = nlohmann::json::parse(with_overrides(R"({"rope_theta": 5.0, "rope_scaling": null})", m, "x"));
  BOOST_TEST(j["rope_scaling"]["rope_type"] == "yarn");
  BOOST_TEST(j["rope_scaling"]["factor"] == 4);
  BOOST_TEST(j["rope_scaling"]["original_max_position_embeddings"] == 32768);
  BOOST_TEST(j["rope_theta"] == 5.0);
  j = nlohmann::json::parse(with_overrides(
      R"({"rope_parameters": {"rope_type": "llama3", "rope_theta": 7.0, "low_freq_factor": 1}})", m, "x"));
  BOOST_TEST(j["rope_parameters"]["rope_theta"] == 7.0);
  BOOST_TEST(!j["rope_parameters"].contains("low_freq_factor"));
  BOOST_TEST(!j.contains("rope_scaling"));
  m = {};
  m.rope_theta = 9;
  j = nlohmann::json::parse(with_overrides(R"({"rope_theta": 5.0})", m, "x"));
  BOOST_TEST(j["rope_theta"] == 9.0);
  m = {};
  m.rope_factor = 2;
  check_refused(Exit::usage, {"model.rope.type"}, [&] { with_overrides("{}", m, "x"); });
}

BOOST_AUTO_TEST_CASE(weights_of_another_model_are_refused_by_name) {
  const RunConfig run = tiny_run("qwen3", {});
  const ModelSource source = open_model(run);
  const auto refused = [&](const ModelConfig& c, const std::vector<std::string>& parts) {
    check_refused(Exit::input, parts, [&] { check_source(*source.weights, make_units(c), c, "there"); });
  };
  ModelConfig c = source.config;
  c.F += 1;
  refused(c, {"there", "mlp.", "shape", std::to_string(c.F)});
  c = source.config;
  c.L += 1;
  c.windows.push_back(0);
  refused(c, {"model.layers." + std::to_string(c.L - 1), "missing"});
  c = source.config;
  c.L -= 1;
  c.windows.pop_back();
  refused(c, {"model.layers." + std::to_string(c.L), "not part of"});
  c = source.config;
  c.tied = true;  // a head in the file is then simply not used
  check_source(*source.weights, make_units(c), c, "there");
  const RunConfig tied = tiny_run("llama_tied", {});
  const ModelSource headless = open_model(tied);
  c = headless.config;
  c.tied = false;
  check_refused(Exit::input, {"lm_head.weight", "tie_word_embeddings"},
                [&] { check_source(*headless.weights, make_units(c), c, "there"); });
}

BOOST_AUTO_TEST_SUITE_END()
