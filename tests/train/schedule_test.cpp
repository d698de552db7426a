// Learning rates against transformers' get_scheduler, the rows of every step, and the count of flops.
#include "train/schedule.h"
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <set>
#include "train/flops.h"
#include "train/step_plan.h"

using namespace annulus;

BOOST_AUTO_TEST_SUITE(train)

BOOST_AUTO_TEST_CASE(linear_rates_are_transformers) {
  OptimizerSection o{.lr = 0.003, .schedule = "linear", .warmup = 2};
  const double want[] = {0.0,    0.0015, 0.003,  0.0027, 0.0024, 0.0021,
                         0.0018, 0.0015, 0.0012, 0.0009, 0.0006, 0.0003};
  for (int k = 0; k < 12; ++k) BOOST_TEST(std::abs(learning_rate(o, k, 12) - want[k]) < 1e-15, "step " << k);
}

BOOST_AUTO_TEST_CASE(cosine_and_constant_rates) {
  OptimizerSection o{.lr = 2.0, .schedule = "cosine", .warmup = 3};
  BOOST_TEST(learning_rate(o, 0, 11) == 0.0);
  BOOST_TEST(std::abs(learning_rate(o, 2, 11) - 4.0 / 3) < 1e-15);
  BOOST_TEST(learning_rate(o, 3, 11) == 2.0);
  BOOST_TEST(std::abs(learning_rate(o, 7, 11) - 1.0) < 1e-15);  // half way down
  BOOST_TEST(std::abs(learning_rate(o, 10, 11) - (1 + std::cos(std::acos(-1.0) * 7 / 8))) < 1e-14);
  o.schedule = "constant";
  BOOST_TEST(std::abs(learning_rate(o, 1, 11) - 2.0 / 3) < 1e-15);
  BOOST_TEST(learning_rate(o, 10, 11) == 2.0);
}

BOOST_AUTO_TEST_CASE(warmup_below_one_is_a_fraction_rounded_up) {
  OptimizerSection o{.warmup = 0.1};
  BOOST_TEST(warmup_steps(o, 12) == 2);
  BOOST_TEST(warmup_steps(o, 10) == 1);
  o.warmup = 5;
  BOOST_TEST(warmup_steps(o, 12) == 5);
  o.warmup = 0;
  BOOST_TEST(warmup_steps(o, 12) == 0);
  BOOST_TEST(learning_rate(o, 0, 12) == o.lr);
}

BOOST_AUTO_TEST_CASE(every_epoch_deals_each_row_once) {
  StepPlan plan(11, 3, DataSection{.epochs = 2}, TrainSection{});
  BOOST_TEST(plan.steps_per_epoch() == 4);
  BOOST_TEST(plan.total() == 8);
  std::vector<std::vector<std::int64_t>> orders;
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<std::int64_t> order;
    for (std::int64_t j = 0; j < 4; ++j) {
      const StepRows s = plan.step(epoch * 4 + j);
      BOOST_TEST(s.epoch == epoch);
      BOOST_TEST(s.rows.size() == (j < 3 ? 3u : 2u));
      BOOST_TEST(std::abs(s.epoch_after - (double(epoch) + (j < 3 ? 3.0 * double(j + 1) / 11 : 1.0))) <
                 1e-15);
      order.insert(order.end(), s.rows.begin(), s.rows.end());
    }
    BOOST_TEST(std::set<std::int64_t>(order.begin(), order.end()).size() == 11u);
    orders.push_back(order);
  }
  BOOST_TEST(orders[0] != orders[1]);
  // The same step again, after another epoch was dealt.
  const StepRows again = plan.step(1);
  BOOST_TEST(again.rows == std::vector<std::int64_t>(orders[0].begin() + 3, orders[0].begin() + 6));
}

BOOST_AUTO_TEST_CASE(steps_override_epochs_and_epochs_may_be_fractions) {
  BOOST_TEST(StepPlan(11, 3, DataSection{.epochs = 0.3}, TrainSection{}).total() == 2);
  StepPlan plan(5, 2, DataSection{.epochs = 1}, TrainSection{.steps = 7});
  BOOST_TEST(plan.total() == 7);
  BOOST_TEST(plan.step(6).epoch == 2);
}

BOOST_AUTO_TEST_CASE(rows_go_round_the_data_groups) {
  const StepRows s{.epoch = 0, .rows = {4, 9, 2, 7, 5}, .epoch_after = 1};
  BOOST_TEST(micro_steps(s, 3) == 2);
  BOOST_TEST(row_of(s, 0, 0, 3) == 4);
  BOOST_TEST(row_of(s, 1, 1, 3) == 5);
  BOOST_TEST(row_of(s, 1, 2, 3) == -1);
  BOOST_TEST(micro_steps(s, 1) == 5);
  BOOST_TEST(micro_steps(s, 8) == 1);
  BOOST_TEST(row_of(s, 0, 7, 8) == -1);
}

BOOST_AUTO_TEST_CASE(visible_pairs_are_counted_as_they_are_seen) {
  const RowShape row{.sequence = 40, .used = 37, .starts = {0, 5, 6, 20}};
  for (const std::int64_t window : {0, 1, 7, 100}) {
    double want = 0;
    for (std::size_t d = 0; d < row.starts.size(); ++d) {
      const std::int64_t end = d + 1 < row.starts.size() ? row.starts[d + 1] : row.used;
      for (std::int64_t p = row.starts[d]; p < end; ++p)
        for (std::int64_t k = row.starts[d]; k <= p; ++k) want += window == 0 || p - k < window ? 1 : 0;
    }
    BOOST_TEST(visible_pairs(row, window) == want, "window " << window);
  }
  ModelConfig c;
  c.C = 6, c.F = 10, c.V = 50, c.L = 2, c.H = 3, c.G = 1, c.D = 4;
  c.windows = {0, 7};
  const double matrices = 2 * (6 * (3 + 2) * 4 + 12 * 6 + 3 * 6 * 10) + 6 * 50;
  const double want = 3 * (2 * 37 * matrices + 4 * 12 * (visible_pairs(row, 0) + visible_pairs(row, 7)));
  BOOST_TEST(model_flops(c, {}, row) == want);
}

BOOST_AUTO_TEST_SUITE_END()
