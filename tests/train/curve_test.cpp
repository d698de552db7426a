// The oracle's 12 steps of AdamW, by the real trainer over real ranks: transformers' losses, norms and rates.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include "ops/cpu/queue.h"
#include "support/data.h"
#include "train/trained.h"

using namespace annulus;
using namespace annulus::test;

namespace {

constexpr const char* kCases[] = {
    "qwen3",       "qwen3_tied_yarn", "llama3",         "packed",         "llama_tied",
    "window",      "lora_qv",         "lora_all",       "lora_bias",      "lora_packed",
    "moe",         "moe_mixed",       "moe_packed",     "moe_all",        "moe_starved",
    "moe_crowded", "lora_moe",        "lora_moe_mixed", "lora_moe_joined"};

void check_curve(Comm& world, const std::string& name, int context, int expert) {
  const SharedFolder folder(world);
  std::ifstream in(test_data("tests/oracle") + "/" + name + "/expected.json");
  const nlohmann::json expected = nlohmann::json::parse(in);
  const Life life =
      live(world, tiny_run(name, {"--run.dir", folder.path("run"), "--parallel.context",
                                  std::to_string(context), "--parallel.expert", std::to_string(expert)}));
  const std::string what = name + ", context " + std::to_string(context) + ", expert " +
                           std::to_string(expert) + " of " + std::to_string(world.size());
  BOOST_TEST(static_cast<int>(life.exit) == 0, what);
  BOOST_REQUIRE_MESSAGE(life.steps.size() == expected.at("losses").size(), what);
  double worst_loss = 0, worst_norm = 0;
  for (std::size_t k = 0; k < life.steps.size(); ++k) {
    const StepReport& r = life.steps[k];
    const double loss = expected["losses"][k], norm = expected["grad_norms"][k], lr = expected["lrs"][k];
    worst_loss = std::max(worst_loss, std::abs(r.loss / loss - 1));
    worst_norm = std::max(worst_norm, std::abs(r.grad_norm / norm - 1));
    BOOST_TEST(std::abs(r.lr - lr) <= 1e-12 * std::abs(lr) + 1e-18, what << ": lr of step " << k);
    BOOST_TEST(r.targets == expected["step_targets"][k].get<std::int64_t>(),
               what << ": targets of step " << k);
  }
  BOOST_TEST(worst_loss <= 2e-4, what << ": loss " << worst_loss);
  BOOST_TEST(worst_norm <= 2e-4, what << ": gradient norm " << worst_norm);
  BOOST_TEST_MESSAGE(what << ": loss within " << worst_loss << ", norm within " << worst_norm);
}

void check_all(int ranks) {
  CpuQueue queue;
  const auto world = session().world(queue);
  for (const char* name : kCases)
    for (int context = 1; context <= ranks; context *= 2) {
      const bool experts = std::string(name).find("moe") != std::string::npos;
      // On the diagonal: all experts on a rank where the row is whole, a few where it is cut.
      check_curve(*world, name, context, experts ? ranks / context : 1);
    }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(train)

BOOST_AUTO_TEST_CASE(twelve_steps_are_transformers_on_one_rank, *boost::unit_test::label("slow")) {
  check_all(1);
}
BOOST_AUTO_TEST_CASE(twelve_steps_are_transformers_on_two_ranks,
                     *boost::unit_test::label("ranks2") * boost::unit_test::label("slow")) {
  check_all(2);
}
BOOST_AUTO_TEST_CASE(twelve_steps_are_transformers_on_four_ranks,
                     *boost::unit_test::label("ranks4") * boost::unit_test::label("slow")) {
  check_all(4);
}

BOOST_AUTO_TEST_SUITE_END()
