#include "data/line_reader.h"
#include <boost/test/unit_test.hpp>
#include <random>
#include "support/refusal.h"
#include "support/temp_folder.h"

using namespace annulus;
using annulus::test::check_refused;
using annulus::test::TempFolder;

namespace {

struct Line {
  std::string text;
  std::int64_t at;
  bool operator==(const Line&) const = default;
};

std::vector<Line> lines_of(const std::string& path, std::int64_t size, std::int64_t from, std::int64_t to) {
  LineReader reader(path, size, from, to);
  std::vector<Line> out;
  while (reader.next()) {
    out.push_back({std::string(reader.line()), reader.at()});
    BOOST_TEST(reader.number() == static_cast<std::int64_t>(out.size()));
  }
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data)

BOOST_AUTO_TEST_CASE(lines_marks_and_endings) {
  const TempFolder f;
  const std::string text =
      "\xEF\xBB\xBF"
      "a\r\n\nbc\n\r\nlast";
  const std::string path = f.write("x", text);
  const auto size = static_cast<std::int64_t>(text.size());
  const std::vector<Line> want{{"a", 3}, {"", 6}, {"bc", 7}, {"", 10}, {"last", 12}};
  BOOST_TEST((lines_of(path, size, 0, size) == want));
  LineReader reader(path, size, 0, size);
  for (std::size_t i = 0; i < want.size(); ++i) {
    reader.next();
    BOOST_TEST(reader.last() == (i + 1 == want.size()));
  }
  check_refused(Exit::environment, {"cannot read", "/nowhere"}, [] { LineReader("/nowhere", 5, 0, 5); });
  check_refused(Exit::environment, {"cannot read", "byte 0"},
                [&] { LineReader(path, size + 1, 0, size + 1).next(); });
}

BOOST_AUTO_TEST_CASE(parts_in_order_are_the_file) {
  std::mt19937_64 random(1);
  const TempFolder f;
  for (int round = 0; round < 30; ++round) {
    std::string text;
    for (std::uint64_t n = random() % 40; n > 0; --n)
      text += random() % 3 == 0 ? "\n" : std::string(random() % 9, 'x') + "\r\n";
    text += "end";
    const std::string path = f.write("x", text);
    const auto size = static_cast<std::int64_t>(text.size());
    const auto want = lines_of(path, size, 0, size);
    for (const std::int64_t parts : {2, 3, 7, 50}) {
      std::vector<Line> got;
      for (std::int64_t p = 0; p < parts; ++p)
        for (const Line& l : lines_of(path, size, size * p / parts, size * (p + 1) / parts)) got.push_back(l);
      BOOST_TEST((got == want));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_line_longer_than_many_blocks) {
  const TempFolder f;
  std::string text = "first\n" + std::string(std::size_t{50} << 20, 'y');
  text += "\nthird\n";
  const std::string path = f.write("x", text);
  const auto size = static_cast<std::int64_t>(text.size());
  const auto got = lines_of(path, size, 0, size);
  BOOST_REQUIRE(got.size() == 3u);
  BOOST_TEST(got[1].text.size() == std::size_t{50} << 20);
  BOOST_TEST(got[2].at == size - 6);
  BOOST_TEST(lines_of(path, size, size / 2, size).size() == 1u);
}

BOOST_AUTO_TEST_SUITE_END()
