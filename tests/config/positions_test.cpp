// Rows against the positions that a model can tell apart.
#include <boost/test/unit_test.hpp>
#include "config/model_config.h"
#include "config/run_config.h"
#include "support/refusal.h"

using namespace annulus;
using test::check_refused;

namespace {

ModelConfig model(const std::string& type, double factor, std::int64_t original, std::int64_t trained) {
  ModelConfig c;
  c.rope.type = type;
  c.rope.factor = factor;
  c.rope.original_positions = original;
  c.max_positions = trained;
  return c;
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(config)

BOOST_AUTO_TEST_CASE(rows_beyond_the_positions_are_told) {
  RunConfig run;
  run.data.sequence = 40960;
  const ModelConfig plain = model("default", 1, 0, 40960);
  BOOST_TEST(check_positions(plain, run).empty());
  run.data.sequence = 163841;
  const std::string warning = check_positions(plain, run);
  for (const char* part : {"warning", "163841", "40960", "model.rope.factor=5", "yarn"})
    BOOST_TEST(says(warning, part), warning);
  run.data.max_length = 40960;  // documents are cut
  BOOST_TEST(check_positions(plain, run).empty());
}

BOOST_AUTO_TEST_CASE(stretched_positions_must_reach) {
  RunConfig run;
  run.data.sequence = 131072;
  // As the model's file has them: told, when neither the stretch nor the training reaches.
  BOOST_TEST(check_positions(model("llama3", 8, 8192, 131072), run).empty());
  BOOST_TEST(check_positions(model("yarn", 4, 32768, 40960), run).empty());
  BOOST_TEST(says(check_positions(model("yarn", 2, 32768, 40960), run), "warning"));
  // As the run asks for: refused.
  run.model.rope_type = "yarn";
  run.model.rope_factor = 3.5;
  check_refused(Exit::usage, {"131072", "114688", "model.rope.factor=4"},
                [&] { check_positions(model("yarn", 3.5, 32768, 40960), run); });
  BOOST_TEST(check_positions(model("yarn", 4, 32768, 40960), run).empty());
}

BOOST_AUTO_TEST_SUITE_END()
