// The cache of graphs and algorithms.
#include "core/lru.h"
#include <boost/test/unit_test.hpp>
#include <string>

using annulus::cuda::Lru;

BOOST_AUTO_TEST_SUITE(cuda)

BOOST_AUTO_TEST_CASE(lru_makes_once_and_forgets_the_oldest) {
  Lru<int, std::string> cache(3);
  int made = 0;
  const auto get = [&](int key) { return cache.get(key, [&] { return ++made, std::to_string(key); }); };
  for (int key : {1, 2, 3, 1, 2, 3}) BOOST_TEST(get(key) == std::to_string(key));
  BOOST_TEST(made == 3);
  get(1);  // 2 is now the oldest
  get(4);
  BOOST_TEST(cache.size() == 3u);
  get(1), get(3), get(4);
  BOOST_TEST(made == 4);
  get(2);
  BOOST_TEST(made == 5);
}

BOOST_AUTO_TEST_CASE(lru_keeps_nothing_of_a_value_that_could_not_be_made) {
  Lru<int, int> cache(2);
  BOOST_CHECK_THROW(cache.get(7, []() -> int { annulus::fail("make", "cannot"); }), annulus::Error);
  BOOST_TEST(cache.size() == 0u);
  BOOST_TEST(cache.get(7, [] { return 49; }) == 49);
}

BOOST_AUTO_TEST_SUITE_END()
