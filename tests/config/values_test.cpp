#include "config/values.h"
#include <boost/test/unit_test.hpp>
#include <limits>
#include <random>

using namespace annulus;

BOOST_AUTO_TEST_SUITE(config)

BOOST_AUTO_TEST_CASE(whole_numbers_are_exact_or_refused) {
  const auto is = [](const char* text, std::int64_t n) {
    const auto got = whole_number(text);
    BOOST_TEST(got.has_value(), text);
    if (got) BOOST_TEST(*got == n, text << " read as " << *got);
  };
  is("0", 0);
  is("-1", -1);
  is("+7", 7);
  is("1_048_576", 1048576);
  is("1M", 1048576);
  is("131K", 134144);
  is("3G", 3221225472);
  is("1e6", 1000000);
  is("1.5e3", 1500);
  is("2.50e1", 25);
  is("1E+2", 100);
  is("10e-1", 1);
  is("-2e3", -2000);
  is("9007199254740993", 9007199254740993);  // beyond what a double holds
  is("9223372036854775807", std::numeric_limits<std::int64_t>::max());
  is("-9223372036854775808", std::numeric_limits<std::int64_t>::min());
  for (const char* bad : {"",
                          "-",
                          "+",
                          "1.5",
                          "1.0",
                          "1e-1",
                          "15e-2",
                          "1e",
                          "e6",
                          "1e19",
                          "9223372036854775808",
                          "nan",
                          "inf",
                          "0x10",
                          "1 000",
                          "1,000",
                          "_1",
                          "1_",
                          "1__0",
                          "1k",
                          "M",
                          "1MM",
                          "9000000000G",
                          "1e6K",
                          ".5e1",
                          "5.e1",
                          "--1",
                          "1e1e1",
                          "1e99999999999",
                          "true"})
    BOOST_TEST(!whole_number(bad).has_value(), bad);
}

BOOST_AUTO_TEST_CASE(finite_numbers_only) {
  BOOST_TEST(finite_number("2e-5").value() == 2e-5);
  BOOST_TEST(finite_number("-.5").value() == -0.5);
  BOOST_TEST(finite_number("+3").value() == 3.0);
  for (const char* bad :
       {"", "nan", "-nan", "inf", "infinity", "1e400", "0x1p3", "1_0", "1f", "1e", "1 ", " 1", "1-2"})
    BOOST_TEST(!finite_number(bad).has_value(), bad);
}

BOOST_AUTO_TEST_CASE(shortest_text_reads_back_exactly) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 2000; ++i) {
    const double v = std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 200) - 150);
    BOOST_TEST(finite_number(shortest(v)).value() == v);
  }
}

BOOST_AUTO_TEST_CASE(edit_distances) {
  BOOST_TEST(edit_distance("", "abc") == 3);
  BOOST_TEST(edit_distance("sequence", "sequnce") == 1);
  BOOST_TEST(edit_distance("ab", "ba") == 1);
  BOOST_TEST(edit_distance("kitten", "sitting") == 3);
}

BOOST_AUTO_TEST_SUITE_END()
