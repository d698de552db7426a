#include "data/byte_stream.h"
#include <boost/test/unit_test.hpp>
#include <random>
#include "data/compress.h"
#include "data/line_reader.h"
#include "support/refusal.h"
#include "support/temp_folder.h"

using namespace annulus;
using annulus::test::check_refused;
using annulus::test::gzipped;
using annulus::test::TempFolder;

namespace {

/// All of a file, read in pieces of at most `most` bytes.
std::string all_of(const std::string& path, std::int64_t most) {
  const auto in = open_bytes(path, compression_of(path));
  std::string out, piece(static_cast<std::size_t>(most), '\0');
  while (const std::int64_t got = in->read(piece.data(), most))
    out.append(piece, 0, static_cast<std::size_t>(got));
  return out;
}

/// Text that does not compress well, longer than a block.
std::string long_text() {
  std::mt19937_64 random(3);
  std::string text;
  while (text.size() < 2500000) {
    for (std::uint64_t n = random() % 30; n > 0; --n) text += static_cast<char>('!' + random() % 90);
    text += random() % 2 == 0 ? "\n" : "\r\n";
  }
  return text + "end";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data)

BOOST_AUTO_TEST_CASE(compressed_files_are_their_text) {
  const TempFolder f;
  const std::string text = long_text();
  const std::string a = text.substr(0, 1000003), b = text.substr(1000003);
  const std::string zeros(300, '\0');
  const std::pair<const char*, std::string> files[] = {
      {"plain", text},
      {"one.gz", gzipped(text)},
      {"two.gz", gzipped(a) + gzipped("") + gzipped(b)},  // members one after the other
      {"padded.gz", gzipped(a) + zeros + gzipped(b) + zeros},
      {"one.zst", test::zstd(text)},
      {"two.zst", test::zstd(a) + test::zstd("") + test::zstd(b)}};
  for (const auto& [name, bytes] : files) {
    const std::string path = f.write(name, bytes);
    for (const std::int64_t most : {std::int64_t{1000000}, std::int64_t{4096}, std::int64_t{777}})
      BOOST_TEST((all_of(path, most) == text), name << " in pieces of " << most);
    BOOST_TEST(decompressed_size(path, compression_of(path)) == static_cast<std::int64_t>(text.size()), name);
    const auto in = open_bytes(path, compression_of(path));
    in->skip(1234567);
    std::string piece(10, '\0');
    BOOST_TEST(in->read(piece.data(), 10) == 10);
    BOOST_TEST(piece == text.substr(1234567, 10), name);
  }
}

BOOST_AUTO_TEST_CASE(lines_of_parts_of_a_compressed_file) {
  const TempFolder f;
  const std::string text = long_text();
  const auto size = static_cast<std::int64_t>(text.size());
  const std::string plain = f.write("a", text), packed = f.write("a.zst", test::zstd(text));
  std::int64_t lines = 0;
  for (const std::int64_t from : {std::int64_t{0}, std::int64_t{999999}, size - 5}) {
    LineReader want(plain, size, from, size), got(packed, size, from, size, Compression::zstd);
    while (want.next()) {
      BOOST_REQUIRE(got.next());
      BOOST_REQUIRE((got.line() == want.line() && got.at() == want.at()));
      ++lines;
    }
    BOOST_TEST(!got.next());
  }
  BOOST_TEST(lines > 100000);
  // Without its size, as it is looked at first.
  LineReader unknown(packed, LineReader::kUnknown, 0, LineReader::kUnknown, Compression::zstd);
  std::string last;
  while (unknown.next()) last = unknown.line();
  BOOST_TEST(last == "end");
}

BOOST_AUTO_TEST_CASE(cut_and_damaged_files_are_refused) {
  const TempFolder f;
  const std::string text = long_text(), gz = gzipped(text), zs = test::zstd(text);
  for (const std::string& whole : {gz, zs}) {
    const char* kind = whole == gz ? "gzip" : "zstd";
    for (const std::size_t keep : {whole.size() - 1, whole.size() / 2, std::size_t{9}})
      check_refused(Exit::input, {"x", "cut off", kind, "byte " + std::to_string(keep)},
                    [&] { all_of(f.write("x", whole.substr(0, keep)), 100000); });
    check_refused(Exit::input, {"cut off"},
                  [&] { all_of(f.write("x", whole + whole.substr(0, 20)), 100000); });
    check_refused(Exit::input, {"x", "damaged"}, [&] { all_of(f.write("x", whole + "behind"), 100000); });
    std::string bad = whole;
    for (std::size_t i = 0; i < 100; ++i) bad[bad.size() / 2 + i] ^= 0x55;
    check_refused(Exit::input, {"x is damaged at byte"}, [&] { all_of(f.write("x", bad), 100000); });
  }
}

BOOST_AUTO_TEST_SUITE_END()
