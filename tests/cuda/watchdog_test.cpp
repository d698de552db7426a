// The watchdog speaks when a collective fails or stalls, names it, and is silent otherwise.
#include "comm/watchdog.h"
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <future>

using namespace annulus::cuda;
using namespace std::chrono_literals;

namespace {

constexpr double kStall = 0.5;  // seconds

struct Watched {
  std::promise<std::string> said;
  std::future<std::string> line = said.get_future();
  Watchdog dog{{.stall_seconds = kStall,
                .period = 5ms,
                .where = "rank 3 on node n01",
                .end = [this](const std::string& text) { said.set_value(text); }}};
};

std::string nothing() {
  return {};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda)

BOOST_AUTO_TEST_CASE(a_stalled_collective_is_named) {
  Watched w;
  const int group = w.dog.join(nothing);
  w.dog.began(group, "NCCL all_gather, step 17", [] { return true; });
  w.dog.began(group, "NCCL exchange, step 18", [] { return false; });
  w.dog.began(group, "NCCL reduce_scatter, step 18", [] { return false; });
  BOOST_REQUIRE((w.line.wait_for(10s) == std::future_status::ready));
  const std::string line = w.line.get();
  BOOST_TEST(line.starts_with("rank 3 on node n01: NCCL exchange, step 18 has not finished"));
  BOOST_TEST(line.find('\n') == std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_failure_is_reported_at_once) {
  Watched w;
  const int group = w.dog.join([] { return std::string("remote process exited"); });
  w.dog.began(group, "NCCL all_reduce, step 2", [] { return false; });
  BOOST_REQUIRE((w.line.wait_for(10s) == std::future_status::ready));
  const std::string line = w.line.get();
  BOOST_TEST(line.find("remote process exited") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(work_that_goes_on_elsewhere_is_no_stall, *boost::unit_test::label("slow")) {
  Watched w;
  const int waiting = w.dog.join(nothing), busy = w.dog.join(nothing);
  w.dog.began(waiting, "queued long ahead", [] { return false; });
  const auto until =
      std::chrono::steady_clock::now() +
      3 * std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(kStall));
  while (std::chrono::steady_clock::now() < until) {  // something ends every few milliseconds
    w.dog.began(busy, "short", [] { return true; });
    BOOST_REQUIRE((w.line.wait_for(10ms) == std::future_status::timeout));
  }
  w.dog.leave(waiting);
  BOOST_TEST((w.line.wait_for(300ms) == std::future_status::timeout));  // nothing is waited for any more
}

BOOST_AUTO_TEST_SUITE_END()
