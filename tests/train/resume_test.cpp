// A stopped run that goes on gives what an uninterrupted one gives: the same bits in the same layout, the
// same numbers to rounding in another.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include "io/checkpoint.h"
#include "ops/cpu/queue.h"
#include "support/refusal.h"
#include "train/trained.h"

using namespace annulus;
using namespace annulus::test;

namespace {

// 7 rows, 3 a step: an epoch is 3 steps, its last one short.
const std::vector<std::int64_t> kLengths = {61, 30, 47, 53, 64, 29, 58};

class Runs {
 public:
  explicit Runs(Comm& world) : world_(world), folder_(world) {
    if (world.rank() == 0) std::ofstream(folder_.path("data.jsonl")) << token_rows(kLengths, {}, 96);
    world.barrier();
  }
  std::string dir(const std::string& name) const { return folder_.path(name); }
  RunConfig config(const std::string& name, int context, std::vector<std::string> more = {}) const {
    std::vector<std::string> flags = {"--run.dir",          folder_.path(name),
                                      "--data.train",       folder_.path("data.jsonl"),
                                      "--data.packing",     "none",
                                      "--data.sequence",    "67",
                                      "--data.shuffle",     "true",
                                      "--parallel.context", std::to_string(context),
                                      "--train.rows",       "3",
                                      "--train.steps",      "6",
                                      "--checkpoint.keep",  "9"};
    flags.insert(flags.end(), more.begin(), more.end());
    return tiny_run("qwen3_tied_yarn", flags);
  }
  std::string last(const std::string& name) const {
    return folder_.path(name) + "/checkpoints/step-000006.h5";
  }
  Comm& world() { return world_; }

 private:
  Comm& world_;
  SharedFolder folder_;
};

/// Stops after `stop` steps on one layout, goes on in another, and compares with `want`, an uninterrupted
/// run.
void check_resume(Runs& runs, int ranks, int context, int ranks_after, int context_after, std::int64_t stop,
                  const std::string& straight, const Life& want, bool bitwise) {
  const std::string name = "resumed-" + std::to_string(ranks) + std::to_string(context) + "-" +
                           std::to_string(ranks_after) + std::to_string(context_after) + "-" +
                           std::to_string(stop);
  on_ranks(runs.world(), ranks, [&](Comm& group) {
    const Life first = live(group, runs.config(name, context), stop);
    BOOST_TEST(static_cast<int>(first.exit) == 75, name);
    BOOST_TEST(static_cast<std::int64_t>(first.steps.size()) == stop, name);
  });
  on_ranks(runs.world(), ranks_after, [&](Comm& group) {
    const Life second = live(group, runs.config(name, context_after));
    BOOST_TEST(static_cast<int>(second.exit) == 0, name);
    BOOST_REQUIRE_MESSAGE(static_cast<std::int64_t>(second.steps.size()) == 6 - stop, name);
    for (std::size_t k = 0; k < second.steps.size(); ++k) {
      const StepReport &a = second.steps[k], &b = want.steps[k + static_cast<std::size_t>(stop)];
      BOOST_TEST(a.step == b.step, name);
      BOOST_TEST(a.lr == b.lr, name);
      BOOST_TEST(a.targets == b.targets, name);
      BOOST_TEST(a.epoch == b.epoch, name);
      const double allowed = bitwise ? 0.0 : 5e-6;
      BOOST_TEST(std::abs(a.loss - b.loss) <= allowed * b.loss,
                 name << ": loss " << a.loss << " for " << b.loss);
      BOOST_TEST(std::abs(a.grad_norm - b.grad_norm) <= 4 * allowed * b.grad_norm, name << ": norm");
    }
    const Gradients got = read_all(runs.last(name)), whole = read_all(runs.last(straight));
    if (bitwise)
      BOOST_TEST((got == whole), name << ": the state is not the same to the bit");
    else
      BOOST_TEST(got.size() == whole.size(), name);
    // One line a step, those of the first life and of the second.
    std::ifstream metrics(runs.dir(name) + "/metrics.jsonl");
    std::int64_t line = 0;
    for (std::string text; std::getline(metrics, text);)
      BOOST_TEST(nlohmann::json::parse(text).at("step").get<std::int64_t>() == ++line, name);
    BOOST_TEST(line == 6, name);
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(train)

BOOST_AUTO_TEST_CASE(a_resumed_run_is_the_same_run,
                     *boost::unit_test::label("ranks4") * boost::unit_test::label("slow")) {
  CpuQueue queue;
  const auto world = session().world(queue);
  Runs runs(*world);
  Life one;  // uninterrupted on one rank, known to all
  {
    const auto self = world->split(world->rank());
    one = live(*self, runs.config("straight-1-" + std::to_string(world->rank()), 1));
  }
  const std::string straight = "straight-1-0";
  // Steps 2 and 5 are in the middle of the first and the second epoch, 3 is between them.
  for (const std::int64_t stop : {2, 3, 5}) check_resume(runs, 1, 1, 1, 1, stop, straight, one, true);
  Life four;
  on_ranks(*world, 4, [&](Comm& group) { four = live(group, runs.config("straight-4", 2)); });
  check_resume(runs, 4, 2, 4, 2, 3, "straight-4", four, true);
  check_resume(runs, 2, 2, 1, 1, 2, straight, one, false);
  check_resume(runs, 2, 1, 4, 4, 3, straight, one, false);
  check_resume(runs, 4, 2, 3, 1, 5, straight, one, false);
  check_resume(runs, 4, 1, 3, 3, 2, straight, one, false);
}

BOOST_AUTO_TEST_CASE(a_save_beside_the_training_holds_its_own_step,
                     *boost::unit_test::label("ranks3") * boost::unit_test::label("slow")) {
  CpuQueue queue;
  const auto world = session().world(queue);
  Runs runs(*world);
  for (const std::string background : {"true", "false"})
    live(*world,
         runs.config(background, 1, {"--checkpoint.background", background, "--checkpoint.every", "1"}));
  for (int step = 1; step <= 6; ++step) {
    const std::string file = "/checkpoints/step-00000" + std::to_string(step) + ".h5";
    const Gradients behind = read_all(runs.dir("true") + file), now = read_all(runs.dir("false") + file);
    BOOST_TEST((behind == now), "step " << step << " is not the same to the bit");
  }
}

BOOST_AUTO_TEST_CASE(what_may_not_change_is_refused_by_name, *boost::unit_test::label("slow")) {
  CpuQueue queue;
  const auto world = session().world(queue);
  Runs runs(*world);
  live(*world, runs.config("run", 1), 2);
  const auto refused = [&](Exit code, std::vector<std::string> parts, std::vector<std::string> flags) {
    check_refused(code, parts, [&] { live(*world, runs.config("run", 1, flags)); });
  };
  refused(Exit::usage, {"optimizer.beta2", "0.999", "0.5"}, {"--optimizer.beta2", "0.5"});
  const TempFolder other;
  auto config = runs.config("run", 1);
  config.train.rows = 2;
  check_refused(Exit::usage, {"train.rows", "3", "2"}, [&] { live(*world, config); });
  config = runs.config("run", 1);
  config.data.train = {other.write("other.jsonl", token_rows({61, 30, 47, 53, 64, 29, 59}, {}, 96))};
  check_refused(Exit::usage, {"data.train", "data.jsonl", "other.jsonl"}, [&] { live(*world, config); });
  // A token file is known by what is in it.
  tokenize_files(*world, config.data.train, config.data, model_config_of(config), config.model.path,
                 other.path("other.h5"));
  config.data.train = {other.path("other.h5")};
  check_refused(Exit::input, {"other data", "step-000002.h5"}, [&] { live(*world, config); });
  std::filesystem::copy(runs.dir("run") + "/tokens.h5", other.path("moved.h5"));
  config.data.train = {other.path("moved.h5")};
  BOOST_TEST(live(*world, config, 3).steps.size() == 1u);
  config = runs.config("run", 1);
  config.checkpoint.resume = "none";
  check_refused(Exit::usage, {"checkpoints of an earlier run", "run.dir"}, [&] { live(*world, config); });
  // What only says where and how it runs may change.
  config = runs.config("run", 1);
  config.data.train = {other.path("moved.h5")};
  config.memory.loss_tile = 17;
  config.memory.keep_attention = "false";
  BOOST_TEST(live(*world, config).steps.size() == 3u);
}

BOOST_AUTO_TEST_SUITE_END()
