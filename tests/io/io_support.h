// What the tests of files share: a folder of their own, a group of the test's ranks, and errors looked at
// whole.
#pragma once
#include <unistd.h>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>
#include "comm/comm.h"
#include "io/checkpoint.h"
#include "support/world.h"

namespace annulus::test {

namespace fs = std::filesystem;

/// Host memory, and everything has happened when the call returns.
class HostQueue : public Queue {
 public:
  Mark mark(Lane) override { return {}; }
  void wait(Lane, Mark) override {}
  void sync(Mark) override {}
  void copy(Lane, const Tensor& from, const Tensor& to) override {
    std::memmove(to.data, from.data, static_cast<std::size_t>(from.bytes()));
  }
  void zero(Lane, const Tensor& t) override { std::memset(t.data, 0, static_cast<std::size_t>(t.bytes())); }
};

inline HostQueue& host_queue() {
  static HostQueue queue;
  return queue;
}

/// All ranks of the test program, or one without MPI behind it.
inline std::unique_ptr<Comm> all_ranks() {
  return session().world(host_queue());
}
inline std::unique_ptr<Comm> no_mpi() {
  return make_self_comm(host_queue());
}

/// A folder that all ranks share and that goes when the scope ends.
class RanksFolder {
 public:
  explicit RanksFolder(Comm& world) : world_(world) {
    std::string path;
    if (world.rank() == 0) {
      std::string pattern = (fs::temp_directory_path() / "annulus-io-XXXXXX").string();
      BOOST_REQUIRE(mkdtemp(pattern.data()) != nullptr);
      path = pattern;
    }
    world.broadcast(path, 0);
    path_ = path;
  }
  RanksFolder(const RanksFolder&) = delete;
  ~RanksFolder() {
    world_.barrier();
    std::error_code none;
    if (world_.rank() == 0) fs::remove_all(path_, none);
  }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  Comm& world_;
  fs::path path_;
};

/// Runs `work`, which must throw an Error of that code whose sentence holds all the given words.
inline void check_error(Exit code, std::initializer_list<std::string_view> words,
                        const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    BOOST_TEST(static_cast<int>(e.code) == static_cast<int>(code), e.what());
    for (std::string_view w : words)
      BOOST_TEST((std::string_view(e.what()).find(w) != std::string_view::npos),
                 "no '" << w << "' in: " << e.what());
    BOOST_TEST((std::string_view(e.what()).find('\n') == std::string_view::npos),
               "one sentence: " << e.what());
    return;
  }
  BOOST_ERROR("no error was thrown");
}

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  BOOST_REQUIRE(in.good());
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline void spit(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << bytes;
  out.close();
  BOOST_REQUIRE(out.good());
}

/// Value of element `i` of dataset `d` in the tests: exact in bf16, so that every type holds it.
inline float value_at(std::size_t d, std::int64_t i) {
  const std::uint64_t mixed = (static_cast<std::uint64_t>(i) * 8 + d + 1) * 0x9E3779B97F4A7C15u;
  return static_cast<float>(static_cast<int>((mixed >> 40) % 255) - 127) * 0x1p-5f;
}

}  // namespace annulus::test
