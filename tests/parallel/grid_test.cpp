#include "parallel/grid.h"
#include <boost/test/unit_test.hpp>

using namespace annulus;

BOOST_AUTO_TEST_SUITE(parallel)

BOOST_AUTO_TEST_CASE(grid_numbers_ranks_by_data_ring_and_ulysses) {
  for (int data : {1, 2, 3})
    for (int ring : {1, 2, 5})
      for (int ulysses : {1, 3}) {
        const int world = data * ring * ulysses;
        for (int rank = 0; rank < world; ++rank) {
          const Grid g = make_grid(rank, world, ring * ulysses, ulysses);
          BOOST_TEST((g.data_index * ring + g.ring_index) * ulysses + g.ulysses_index == rank);
          BOOST_TEST((g.data == data && g.ring == ring && g.ulysses == ulysses && g.world == world));
          BOOST_TEST((g.data_index < data && g.ring_index < ring && g.ulysses_index < ulysses));
          BOOST_TEST(g.context() == ring * ulysses);
        }
      }
}

BOOST_AUTO_TEST_CASE(grid_refuses_what_does_not_divide) {
  const auto usage = [](const std::string& word) {
    return [word](const Error& e) {
      return e.code == Exit::usage && e.everywhere && std::string(e.what()).find(word) != std::string::npos;
    };
  };
  BOOST_CHECK_EXCEPTION(make_grid(0, 4, 3, 1), Error, usage("parallel.context = 3"));
  BOOST_CHECK_EXCEPTION(make_grid(0, 4, 8, 1), Error, usage("parallel.context = 8"));
  BOOST_CHECK_EXCEPTION(make_grid(0, 4, 0, 1), Error, usage("parallel.context = 0"));
  BOOST_CHECK_EXCEPTION(make_grid(0, 12, 6, 4), Error, usage("parallel.ulysses = 4"));
  BOOST_CHECK_EXCEPTION(make_grid(0, 12, 6, 0), Error, usage("parallel.ulysses = 0"));
}

BOOST_AUTO_TEST_SUITE_END()
