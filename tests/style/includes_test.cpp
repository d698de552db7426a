// A room includes only rooms above it; libraries are known in one room alone.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <vector>
#include "support/data.h"

namespace {

namespace fs = std::filesystem;

// From the top down, as src/README.md has them.
const std::vector<std::string> kRooms = {"core",  "config", "comm", "ops",   "parallel",
                                         "model", "io",     "data", "train", "app"};

/// Headers of libraries and the rooms that may name them.
const std::vector<std::pair<std::regex, std::vector<std::string>>> kLibraries = {
    {std::regex("mpi\\.h"), {"comm"}},
    {std::regex("hdf5\\.h|H5.*\\.h"), {"io"}},
    {std::regex("cblas\\.h"), {"ops"}},
    {std::regex("boost/program_options.*"), {"config"}},
    {std::regex("(cuda|cublas|cudnn|nccl).*\\.h"), {}}};

struct Include {
  std::string file, name;
  bool own = false;  // in quotes
};

std::vector<Include> includes_of(const fs::path& folder) {
  static const std::regex kLine("\\s*#\\s*include\\s*([<\"])([^>\"]+)[>\"].*");
  std::vector<Include> all;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string ending = entry.path().extension().string();
    if (ending != ".h" && ending != ".cpp") continue;
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);) {
      std::smatch m;
      if (std::regex_match(line, m, kLine)) all.push_back({entry.path().string(), m[2], m[1] == "\""});
    }
  }
  return all;
}

std::size_t place(const std::string& room) {
  return static_cast<std::size_t>(std::find(kRooms.begin(), kRooms.end(), room) - kRooms.begin());
}

const fs::path kSource = annulus::test::test_data("src");

}  // namespace

BOOST_AUTO_TEST_SUITE(style)

BOOST_AUTO_TEST_CASE(every_folder_is_a_room) {
  for (const auto& entry : fs::directory_iterator(kSource))
    if (entry.is_directory())
      BOOST_TEST(place(entry.path().filename()) < kRooms.size(), entry.path().string()
                                                                     << " is not in the list of rooms");
}

BOOST_AUTO_TEST_CASE(rooms_include_only_rooms_above) {
  std::size_t seen = 0;
  for (const std::string& room : kRooms) {
    for (const Include& i : includes_of(kSource / room)) {
      if (!i.own) continue;
      ++seen;
      const std::string other = i.name.substr(0, i.name.find('/'));
      BOOST_TEST(place(other) < kRooms.size(), i.file << " includes " << i.name << ", which names no room");
      BOOST_TEST(place(other) <= place(room), i.file << " includes " << i.name << ", a room below its own");
    }
  }
  BOOST_TEST(seen > 100u);  // the pattern still finds includes
}

BOOST_AUTO_TEST_CASE(libraries_are_known_in_one_room) {
  for (const std::string& room : kRooms)
    for (const Include& i : includes_of(kSource / room))
      for (const auto& [pattern, rooms] : kLibraries)
        if (std::regex_match(i.name, pattern))
          BOOST_TEST((std::find(rooms.begin(), rooms.end(), room) != rooms.end()),
                     i.file << " includes " << i.name << ", which is not for room " << room);
}

BOOST_AUTO_TEST_SUITE_END()
