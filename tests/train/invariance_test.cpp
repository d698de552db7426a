// One step and a few steps give the same numbers in every layout: loss, norm, rate, counts, gradients leaf by
// leaf.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <fstream>
#include <span>
#include "ops/cpu/queue.h"
#include "train/trained.h"

using namespace annulus;
using namespace annulus::test;

namespace {

struct Layouts {
  int ranks, context, ulysses = 1, expert = 1;
};
const std::vector<Layouts> kDense = {{2, 2}, {2, 2, 2}, {2, 1},    {4, 2}, {4, 2, 2},
                                     {4, 4}, {4, 4, 2}, {4, 4, 4}, {3, 1}, {4, 1}};
const std::vector<Layouts> kExperts = {{2, 2, 1, 2}, {2, 1, 1, 2}, {4, 2, 2, 4},
                                       {4, 4, 2, 4}, {3, 1},       {4, 1, 1, 2}};

struct Data {
  const char* what;
  std::vector<std::int64_t> lengths, targets;
  std::int64_t sequence;
  const char* packing;
};
// Rows of one document ("none"): every row is a micro-step of its own.
const Data kData[] = {
    {"micro-steps with 1 and with 100 targets, one row with none",
     {103, 101, 57, 89, 103, 33},
     {1, 100, 0, -1, 7, -1},
     103,
     "none"},
    {"packed documents in odd rows", {61, 5, 37, 90, 11, 2, 44, 29, 53, 17, 71, 8}, {}, 131, "bfd"},
    {"joined and sliced", {61, 50, 37, 90, 11, 200, 44, 29, 53, 17, 71, 8}, {}, 97, "wrapped"}};

struct Model {
  const char* name;
  std::int64_t vocabulary;
  const std::vector<Layouts>& layouts;
  std::size_t data = std::size(kData);  // the first so many
  const char* shard = "world";
  std::vector<std::string> flags = {};
};

RunConfig run_of(const Model& model, const Data& data, const std::string& dir, const std::string& file,
                 const Layouts& at, int rows, std::vector<std::string> more) {
  std::vector<std::string> flags = {"--run.dir",          dir,
                                    "--data.train",       file,
                                    "--data.packing",     data.packing,
                                    "--data.sequence",    std::to_string(data.sequence),
                                    "--data.shuffle",     "true",
                                    "--parallel.context", std::to_string(at.context),
                                    "--parallel.ulysses", std::to_string(at.ulysses),
                                    "--parallel.expert",  std::to_string(at.expert),
                                    "--parallel.shard",   model.shard,
                                    "--train.rows",       std::to_string(rows),
                                    "--train.steps",      "3",
                                    "--optimizer.clip",   "0.5"};
  flags.insert(flags.end(), model.flags.begin(), model.flags.end());
  flags.insert(flags.end(), more.begin(), more.end());
  return tiny_run(model.name, flags);
}

void compare(const Life& got, const Life& want, const std::string& what) {
  BOOST_REQUIRE_MESSAGE(got.steps.size() == want.steps.size(), what);
  for (std::size_t k = 0; k < want.steps.size(); ++k) {
    const StepReport &a = got.steps[k], &b = want.steps[k];
    BOOST_TEST(a.targets == b.targets, what);
    BOOST_TEST(a.tokens == b.tokens, what);
    BOOST_TEST(a.lr == b.lr, what);
    BOOST_TEST(a.epoch == b.epoch, what);
    BOOST_TEST(a.flops == b.flops, what);
    // Sums in another order, in f32; three steps of AdamW amplify it a little.
    BOOST_TEST(std::abs(a.loss - b.loss) <= 5e-6 * b.loss, what << ": loss " << a.loss << " for " << b.loss);
    BOOST_TEST(std::abs(a.grad_norm - b.grad_norm) <= 2e-5 * b.grad_norm,
               what << ": norm " << a.grad_norm << " for " << b.grad_norm);
    BOOST_TEST(std::abs(a.aux_loss - b.aux_loss) <= 5e-6 * b.aux_loss,
               what << ": auxiliary loss " << a.aux_loss);
    BOOST_TEST(std::abs(a.expert_load_max - b.expert_load_max) <= 1e-9, what);
  }
}

/// Steps of `rows` rows on one rank, then in every layout.
void check_invariance(const Model& model, int rows) {
  CpuQueue queue;
  const auto world = session().world(queue);
  const SharedFolder folder(*world);
  int number = 0;
  for (const Data& data : std::span(kData, model.data)) {
    const std::string tag = "data" + std::to_string(number++);
    const std::string file = folder.path(tag + ".jsonl");
    if (world->rank() == 0) std::ofstream(file) << token_rows(data.lengths, data.targets, model.vocabulary);
    world->barrier();
    Life want;
    Gradients gradients;
    // Every rank learns what one rank alone gives: the run is repeated on each, with folders of their own.
    const std::string own = folder.path(tag + "-alone-" + std::to_string(world->rank()));
    const auto self = world->split(world->rank());
    want = live(*self, run_of(model, data, own, file, {1, 1}, rows, {}));
    live(*self, run_of(model, data, own + "g", file, {1, 1}, rows, {"--debug.gradients", own + ".h5"}));
    gradients = read_all(own + ".h5");
    for (const Layouts& l : model.layouts) {
      const std::string layout = std::to_string(l.ranks) + "-" + std::to_string(l.context) + "-" +
                                 std::to_string(l.ulysses) + "-" + std::to_string(l.expert);
      const std::string name = tag + "-" + layout;
      const std::string what = std::string(data.what) + ", " + std::to_string(rows) +
                               " rows a step, ranks-context-ulysses-expert " + layout;
      on_ranks(*world, l.ranks, [&](Comm& group) {
        compare(live(group, run_of(model, data, folder.path(name), file, l, rows, {})), want, what);
        const std::string h5 = folder.path(name + ".h5");
        live(group, run_of(model, data, folder.path(name + "g"), file, l, rows, {"--debug.gradients", h5}));
        const double worst = worst_leaf(read_all(h5), gradients);
        BOOST_TEST(worst <= 2e-5, what << ": worst leaf " << worst);
      });
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(train)

BOOST_AUTO_TEST_CASE(layouts_agree_without_accumulation,
                     *boost::unit_test::label("ranks4") * boost::unit_test::label("slow")) {
  check_invariance({"window", 89, kDense}, 1);
}
BOOST_AUTO_TEST_CASE(layouts_agree_with_accumulation,
                     *boost::unit_test::label("ranks4") * boost::unit_test::label("slow")) {
  check_invariance({"window", 89, kDense}, 3);
}
BOOST_AUTO_TEST_CASE(layouts_of_experts_agree,
                     *boost::unit_test::label("ranks4") * boost::unit_test::label("slow")) {
  check_invariance({"moe", 61, kExperts, 2}, 3);
}
BOOST_AUTO_TEST_CASE(adapters_beside_frozen_experts_agree,
                     *boost::unit_test::label("ranks4") * boost::unit_test::label("slow")) {
  const std::vector<std::string> lora = {"--lora.rank",    "3",      "--lora.alpha",   "7",
                                         "--lora.targets", "q_proj", "--lora.targets", "o_proj"};
  check_invariance({"moe", 61, kExperts, 1, "world", lora}, 3);
}
BOOST_AUTO_TEST_CASE(adapters_on_experts_agree,
                     *boost::unit_test::label("ranks4") * boost::unit_test::label("slow")) {
  const std::vector<std::string> lora = {"--lora.rank",    "3",          "--lora.alpha",   "7",
                                         "--lora.targets", "all-linear", "--optimizer.lr", "0.02"};
  check_invariance({"moe_mixed", 61, kExperts, 1, "world", lora}, 3);
  check_invariance({"moe_mixed", 61, kExperts, 1, "none", lora}, 1);
}
BOOST_AUTO_TEST_CASE(replicated_experts_agree,
                     *boost::unit_test::label("ranks4") * boost::unit_test::label("slow")) {
  check_invariance({"moe", 61, kExperts, 1, "none"}, 1);
}

BOOST_AUTO_TEST_SUITE_END()
