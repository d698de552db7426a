// Runs with adapters: what is written and read back, what a checkpoint may go on with, and a base that stays.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include "core/bf16.h"
#include "io/adapter.h"
#include "io/checkpoint.h"
#include "ops/cpu/queue.h"
#include "support/backends.h"
#include "support/data.h"
#include "support/refusal.h"
#include "train/adapters.h"
#include "train/hf_folder.h"
#include "train/trained.h"

using namespace annulus;
using namespace annulus::test;

namespace {

/// One of the oracle's models, whose every projection is adapted.
struct Kind {
  std::string name = "qwen3";
  std::int64_t vocabulary = 131;
  std::size_t targets = 7, tensors = 3 * 7 * 2;  // of its adapters
};
/// Experts in the first and the last of three layers.
const Kind kMixed{"moe_mixed", 61, 9, 2 * (3 * 4 + 3 + 2 * 2)};

/// Runs of LoRA on such a model, with rows of the test's own.
class Runs {
 public:
  explicit Runs(Comm& world, Kind kind = {}) : world_(world), folder_(world), kind_(std::move(kind)) {
    if (world.rank() == 0)
      std::ofstream(folder_.path("data.jsonl"))
          << token_rows({61, 30, 47, 53, 64, 29, 58}, {}, kind_.vocabulary);
    world.barrier();
  }
  std::string path(const std::string& name) const { return folder_.path(name); }
  RunConfig config(const std::string& name, int context, std::vector<std::string> more = {}) const {
    std::vector<std::string> flags = {"--run.dir",          path(name),
                                      "--data.train",       path("data.jsonl"),
                                      "--data.packing",     "none",
                                      "--data.sequence",    "67",
                                      "--parallel.context", std::to_string(context),
                                      "--train.rows",       "3",
                                      "--train.steps",      "6",
                                      "--checkpoint.keep",  "9",
                                      "--lora.rank",        "5",
                                      "--lora.alpha",       "9",
                                      "--lora.targets",     "all-linear"};
    flags.insert(flags.end(), more.begin(), more.end());
    return tiny_run(kind_.name, flags);
  }
  std::string last(const std::string& name) const { return path(name) + "/checkpoints/step-000006.h5"; }
  Comm& world() { return world_; }

 private:
  Comm& world_;
  SharedFolder folder_;
  Kind kind_;
};

/// All tensors of a source by name, in f32.
Gradients values_of(WeightSource& source) {
  Gradients all;
  for (const StoredTensor& t : source.tensors()) {
    std::int64_t n = 1;
    for (const std::int64_t extent : t.shape) n *= extent;
    std::vector<float>& v = all[t.name];
    v.resize(static_cast<std::size_t>(n));
    source.read(t.name, 0, n, make_tensor("tensor", v.data(), DType::f32, {n}));
  }
  return all;
}

struct Way {
  int ranks, context, expert = 1;
};

std::vector<std::string> expert_flags(const Way& way) {
  return {"--parallel.expert", std::to_string(way.expert)};
}

void check_resume(Runs& runs, const Way& before, const Way& after, const std::string& straight,
                  bool bitwise) {
  const auto text = [](const Way& w) {
    return std::to_string(w.ranks) + std::to_string(w.context) + std::to_string(w.expert);
  };
  const std::string name = "from-" + text(before) + "-to-" + text(after);
  on_ranks(runs.world(), before.ranks, [&](Comm& group) {
    const Life life = live(group, runs.config(name, before.context, expert_flags(before)), 2);
    BOOST_TEST(static_cast<int>(life.exit) == 75, name);
  });
  on_ranks(runs.world(), after.ranks, [&](Comm& group) {
    const Life life = live(group, runs.config(name, after.context, expert_flags(after)));
    BOOST_TEST(life.steps.size() == 4u, name);
  });
  const Gradients got = read_all(runs.last(name)), want = read_all(runs.last(straight));
  if (bitwise) {
    BOOST_TEST((got == want), name << ": the state is not the same to the bit");
    return;
  }
  BOOST_REQUIRE_MESSAGE(got.size() == want.size(), name);
  double error = 0, whole = 0;
  for (const auto& [dataset, values] : want) {
    if (!dataset.starts_with("/model/")) continue;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double d = double(got.at(dataset)[i]) - values[i];
      error += d * d;
      whole += double(values[i]) * values[i];
    }
  }
  // Six steps of AdamW: where a gradient is near zero, its sign is a matter of rounding.
  BOOST_TEST(std::sqrt(error / whole) <= 1e-3, name << ": " << std::sqrt(error / whole));
}

void check_base_stays(const Kind& kind) {
  CpuQueue queue;
  const auto world = session().world(queue);
  Runs runs(*world, kind);
  const RunConfig run = runs.config("run", 1);
  const Node node{.host = host_name(), .index = 0, .local_rank = 0, .local_size = 1};
  Trainer trainer(*world, node, tested(), run);
  const auto source = open_weights(run.model.path);
  Gradients base = values_of(*source);
  std::size_t seen = 0;
  while (trainer.more()) trainer.step();
  ShardedState& state = trainer.engine().state();
  Staging staging(tested());
  trainer.engine().settle();
  for (int u = 0; u < base_units(trainer.engine().spec().model); ++u) {
    const Tensor masters = staging.on_host_f32(state.state(u).master);
    for (const Segment& s : state.state(u).segments) {
      const std::vector<float>& want = base.at(s.parameter->name);
      const float* got = masters.as<float>() + s.at;
      BOOST_TEST(std::equal(got, got + s.count, want.begin() + s.from), s.parameter->name);
      ++seen;
    }
  }
  BOOST_TEST(seen == base.size());
  BOOST_TEST(static_cast<int>(trainer.finish()) == 0);
  // The checkpoint holds adapters and their moments alone.
  for (const auto& [dataset, values] : read_all(runs.last("run")))
    BOOST_TEST((dataset.find("base_model.model.model.layers.") != std::string::npos), dataset);
}

void check_folder(const Kind& kind) {
  CpuQueue queue;
  const auto world = session().world(queue);
  Runs runs(*world, kind);
  RunConfig run = runs.config("run", 1, {"--optimizer.schedule", "constant", "--optimizer.warmup", "0"});
  run.checkpoint.final = "hf";
  live(*world, run);
  const std::string folder = runs.path("run") + "/adapter";
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator(folder)) ++files;
  BOOST_TEST(files == 2u);
  const auto adapter = open_adapter(folder);
  const Gradients written = values_of(*adapter), kept = read_all(runs.last("run"));
  BOOST_TEST(written.size() == kind.tensors);
  for (const auto& [name, values] : written) BOOST_TEST((values == kept.at("/model/" + name)), name);
  const LoraConfig lora = adapter_of(adapter->config_json(), adapter->tensors(), folder);
  BOOST_TEST(lora.rank == 5);
  BOOST_TEST(lora.alpha == 9);
  BOOST_TEST(lora.targets.size() == kind.targets);

  // A new run may start from it: its first loss is what a longer run has next, to the bit.
  RunConfig longer = run;
  longer.train.steps = 7;
  longer.run.dir = runs.path("longer");
  longer.checkpoint.final = "none";
  const Life all = live(*world, longer);
  BOOST_REQUIRE(all.steps.size() == 7u);
  std::vector<std::string> flags = {"--run.dir",           runs.path("next"),
                                    "--data.train",        runs.path("data.jsonl"),
                                    "--data.packing",      "none",
                                    "--data.sequence",     "67",
                                    "--train.rows",        "3",
                                    "--train.steps",       "7",
                                    "--checkpoint.resume", folder};
  const Life next = live(*world, tiny_run(kind.name, flags), 1);
  BOOST_REQUIRE(next.steps.size() == 1u);
  BOOST_TEST(next.steps[0].loss == all.steps[6].loss);
  // It goes on from its own checkpoint, not from the folder again.
  BOOST_TEST(live(*world, tiny_run(kind.name, flags)).steps.size() == 6u);
  // Another rank than the folder's is refused by name.
  flags.insert(flags.end(), {"--lora.rank", "4"});
  flags[1] = runs.path("other");
  check_refused(Exit::usage, {"lora.rank", "4", "5", folder},
                [&] { live(*world, tiny_run(kind.name, flags)); });
  flags.resize(flags.size() - 2);
  flags.insert(flags.end(), {"--model.path", test_data("tests/oracle/window/model")});
  flags[1] = runs.path("another");
  check_refused(Exit::input,
                kind.targets == 7 ? std::vector<std::string>{folder, "lora_A.weight", "another shape"}
                                  : std::vector<std::string>{folder, "mlp.experts.gate_up_proj", "no layer"},
                [&] { live(*world, tiny_run(kind.name, flags)); });
}

void check_merged(const Kind& kind, std::size_t matrices) {
  CpuQueue queue;
  const auto world = session().world(queue);
  Runs runs(*world, kind);
  live(*world, runs.config("run", 1, {"--optimizer.lr", "0.05"}));
  const std::string merged = runs.path("merged");
  export_merged(*world, runs.last("run"), "", merged, [] {});
  const auto base = open_weights(test_data("tests/oracle/" + kind.name + "/model")),
             got = open_weights(merged);
  const Gradients w = values_of(*base), m = values_of(*got), a = read_all(runs.last("run"));
  BOOST_TEST(std::filesystem::exists(merged + "/generation_config.json"));
  BOOST_REQUIRE(got->tensors().size() == base->tensors().size());
  const LoraConfig lora =
      lora_config(runs.config("run", 1).lora, parse_model_config(base->config_json(), kind.name));
  std::size_t moved = 0, adapted = 0;
  for (const StoredTensor& t : base->tensors()) {
    const std::string name = "/model/" + adapter_name(lora, t.name);
    if (!a.contains(name + ".lora_A.weight")) {
      BOOST_TEST((m.at(t.name) == w.at(t.name)), t.name);
      continue;
    }
    ++adapted;
    const std::vector<float>&la = a.at(name + ".lora_A.weight"), &lb = a.at(name + ".lora_B.weight");
    const std::int64_t columns = t.shape.back(), rows = t.shape[t.shape.size() - 2];  // of each expert
    double worst = 0;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(w.at(t.name).size()); ++i) {
      const std::int64_t expert = i / (rows * columns);
      double delta = 0;
      for (std::int64_t k = 0; k < 5; ++k)
        delta += double(lb[static_cast<std::size_t>(i / columns * 5 + k)]) *
                 la[static_cast<std::size_t>((expert * 5 + k) * columns + i % columns)];
      const auto at = static_cast<std::size_t>(i);
      const double exact = w.at(t.name)[at] + 9.0 / 5 * delta;
      // Half a unit in bf16's last place, and a little of f32's.
      worst = std::max(worst, std::abs(m.at(t.name)[at] - exact) - std::abs(exact) * 0x1p-8);
      moved += m.at(t.name)[at] != w.at(t.name)[at] ? 1 : 0;
    }
    BOOST_TEST(worst <= 1e-7, t.name << " " << worst);
  }
  BOOST_TEST(adapted == matrices);
  BOOST_TEST(moved > 1000u);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(train)

BOOST_AUTO_TEST_CASE(adapters_resume_on_any_world,
                     *boost::unit_test::label("ranks4") * boost::unit_test::label("slow")) {
  CpuQueue queue;
  const auto world = session().world(queue);
  Runs runs(*world);
  on_ranks(*world, 1, [&](Comm& group) { live(group, runs.config("straight-1", 1)); });
  on_ranks(*world, 4, [&](Comm& group) { live(group, runs.config("straight-4", 2)); });
  check_resume(runs, {1, 1}, {1, 1}, "straight-1", true);
  check_resume(runs, {4, 2}, {4, 2}, "straight-4", true);
  check_resume(runs, {2, 2}, {3, 1}, "straight-1", false);
  check_resume(runs, {3, 3}, {4, 1}, "straight-1", false);
}

BOOST_AUTO_TEST_CASE(adapters_of_experts_resume_on_any_world,
                     *boost::unit_test::label("ranks4") * boost::unit_test::label("slow")) {
  CpuQueue queue;
  const auto world = session().world(queue);
  Runs runs(*world, kMixed);
  on_ranks(*world, 1, [&](Comm& group) { live(group, runs.config("straight-1", 1)); });
  on_ranks(*world, 4, [&](Comm& group) {
    live(group, runs.config("straight-4", 2, expert_flags({4, 2, 4})));
  });
  check_resume(runs, {1, 1}, {1, 1}, "straight-1", true);
  check_resume(runs, {4, 2, 4}, {4, 2, 4}, "straight-4", true);
  check_resume(runs, {2, 2, 1}, {4, 1, 4}, "straight-1", false);
  check_resume(runs, {4, 4, 2}, {3, 1, 1}, "straight-1", false);
  check_resume(runs, {4, 1, 4}, {2, 1, 2}, "straight-1", false);
}

// The sum of the layouts' losses, and what a stopped life leaves of the base.
BOOST_AUTO_TEST_CASE(the_base_stays_to_the_bit, *boost::unit_test::label("slow")) {
  check_base_stays({});
}
BOOST_AUTO_TEST_CASE(the_base_of_experts_stays_to_the_bit, *boost::unit_test::label("slow")) {
  check_base_stays(kMixed);
}
BOOST_AUTO_TEST_CASE(an_adapter_folder_is_written_and_read_back, *boost::unit_test::label("slow")) {
  check_folder({});
}
BOOST_AUTO_TEST_CASE(an_adapter_folder_of_experts_is_written_and_read_back,
                     *boost::unit_test::label("slow")) {
  check_folder(kMixed);
}

BOOST_AUTO_TEST_CASE(adapters_go_on_with_their_own_base_and_shape_alone, *boost::unit_test::label("slow")) {
  CpuQueue queue;
  const auto world = session().world(queue);
  Runs runs(*world);
  live(*world, runs.config("run", 1), 2);
  const auto refused = [&](Exit code, std::vector<std::string> parts, std::vector<std::string> flags) {
    check_refused(code, parts, [&] { live(*world, runs.config("run", 1, flags)); });
  };
  RunConfig run = runs.config("run", 1);
  run.lora.rank = 4;
  check_refused(Exit::usage, {"lora.rank", "5", "4"}, [&] { live(*world, run); });
  run = runs.config("run", 1);
  run.lora.rslora = true;
  check_refused(Exit::usage, {"lora.rslora"}, [&] { live(*world, run); });
  run = runs.config("run", 1);
  run.lora = {};
  check_refused(Exit::usage, {"lora.alpha", "9"}, [&] { live(*world, run); });
  run = runs.config("run", 1);
  run.lora.targets = {"q_proj"};
  check_refused(Exit::usage, {"lora.targets", "all-linear"}, [&] { live(*world, run); });
  // The same shapes with other values: the last digits of half the base are changed.
  const TempFolder other;
  std::filesystem::copy(run.model.path, other.path("model"));
  const std::string file = other.path("model") + "/model.safetensors";
  std::string bytes(std::filesystem::file_size(file), '\0');
  std::ifstream(file, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  for (std::size_t i = bytes.size() / 2 * 2 - 2; i > bytes.size() / 2; i -= 2)
    bytes[i] = static_cast<char>(bytes[i] ^ 1);
  std::ofstream(file, std::ios::binary) << bytes;
  run = runs.config("run", 1);
  run.model.path = other.path("model");
  check_refused(Exit::input, {"other base weights", "step-000002.h5", other.path("model")},
                [&] { live(*world, run); });
  // A checkpoint of adapters is no model.
  run = runs.config("fresh", 1);
  run.model.path = runs.path("run") + "/checkpoints/step-000002.h5";
  check_refused(Exit::input, {"adapters alone", "checkpoint.resume"}, [&] { live(*world, run); });
}

BOOST_AUTO_TEST_CASE(adapters_are_merged_in_f32_and_rounded_once, *boost::unit_test::label("slow")) {
  check_merged({}, 21);
  check_merged(kMixed, 3 * 4 + 3 + 2 * 2);
}

BOOST_AUTO_TEST_CASE(a_file_of_a_whole_model_has_nothing_to_merge, *boost::unit_test::label("slow")) {
  CpuQueue queue;
  const auto world = session().world(queue);
  Runs runs(*world);
  check_refused(Exit::usage, {"--merge", "no adapters"}, [&] {
    live(*world, tiny_run("window",
                          {"--run.dir", runs.path("full"), "--train.steps", "1", "--optimizer.warmup", "0"}));
    export_merged(*world, runs.path("full") + "/checkpoints/step-000001.h5", "", runs.path("none"), [] {});
  });
}

BOOST_AUTO_TEST_SUITE_END()
