#include "core/progress.h"
#include <boost/test/unit_test.hpp>

using namespace annulus;

BOOST_AUTO_TEST_SUITE(core)

BOOST_AUTO_TEST_CASE(lines_of_progress) {
  BOOST_TEST(progress_line("tokenizing", 1220000000, 2000000000, "B", 30) ==
             "tokenizing [############--------]  61 %  1.22 of 2.00 GB, 40.7 MB/s, 0:19 left");
  BOOST_TEST(progress_line("x", 0, 7, "steps", 0) == "x [--------------------]   0 %  0 of 7 steps");
  BOOST_TEST(progress_line("x", 7, 7, "steps", 3.5) ==
             "x [####################] 100 %  7 of 7 steps, 2.0 steps/s");
  BOOST_TEST(progress_line("x", 1, 4001, "B", 1) ==
             "x [--------------------]   0 %  0.00 of 4.00 kB, 1.0 B/s, 1:06:40 left");
  // More than was promised, and nothing promised.
  BOOST_TEST(progress_line("x", 9, 7, "steps", 3) ==
             "x [####################] 100 %  9 of 7 steps, 3.0 steps/s");
  BOOST_TEST(progress_line("x", 2500000, 0, "B", 2) == "x 2.50 MB, 1.2 MB/s");
}

BOOST_AUTO_TEST_SUITE_END()
