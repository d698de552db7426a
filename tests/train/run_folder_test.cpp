// The lock that keeps a second job out, what a resumed run keeps of its metrics, and status.json.
#include "train/run_folder.h"
#include <unistd.h>
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include "ops/cpu/queue.h"
#include "support/refusal.h"
#include "support/temp_folder.h"

using namespace annulus;
using namespace annulus::test;

namespace {

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(train)

BOOST_AUTO_TEST_CASE(a_live_lock_keeps_others_out) {
  const TempFolder folder;
  std::vector<std::string> said;
  const auto say = [&](const std::string& line) { said.push_back(line); };
  {
    const RunLock held(folder.path("lock"), say);
    check_refused(Exit::environment, {"in use", folder.path("lock"), std::to_string(getpid())},
                  [&] { RunLock second(folder.path("lock"), say); });
    const auto j = nlohmann::json::parse(text_of(folder.path("lock")));
    BOOST_TEST(j.at("host") == host_name());
    BOOST_TEST(j.at("pid") == getpid());
    BOOST_TEST(j.at("heartbeat").get<long long>() > 0);
  }
  BOOST_TEST(!std::filesystem::exists(folder.path("lock")));
  BOOST_TEST(said.empty());
}

BOOST_AUTO_TEST_CASE(stale_locks_are_taken_over_and_said) {
  const TempFolder folder;
  const std::string path = folder.path("lock");
  // Another process of this machine that has ended: its number may be in use again, its start is another.
  std::string own;
  {
    const RunLock held(path, [](const std::string&) {});
    own = text_of(path);
  }
  auto gone = nlohmann::json::parse(own);
  gone["start"] = "1";
  auto old = nlohmann::json::parse(own);
  old["space"] = "another machine";
  auto fresh = old;
  old["heartbeat"] = old["heartbeat"].get<long long>() - 1000;
  for (const std::string& text : {gone.dump(), old.dump(), std::string("no JSON"), std::string()}) {
    folder.write("lock", text);
    std::vector<std::string> said;
    const RunLock mine(path, [&](const std::string& line) { said.push_back(line); });
    BOOST_REQUIRE(said.size() == 1u);
    BOOST_TEST(said[0].find("stale") != std::string::npos);
    BOOST_TEST(text_of(path) != text);
  }
  // A fresh heartbeat from elsewhere is alive.
  folder.write("lock", fresh.dump());
  check_refused(Exit::environment, {"in use"}, [&] { RunLock mine(path, [](const std::string&) {}); });
}

BOOST_AUTO_TEST_CASE(a_resumed_run_keeps_the_lines_of_its_steps) {
  const TempFolder folder;
  CpuQueue queue;
  const auto self = make_self_comm(queue);
  RunFolder run(*self, folder.path("run"));
  folder.write("run/metrics.jsonl", "{\"step\":1,\"loss\":2}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4,\"lo");
  run.open_metrics(2);
  run.metric("{\"step\":3,\"again\":true}");
  BOOST_TEST(text_of(run.path("metrics.jsonl")) ==
             "{\"step\":1,\"loss\":2}\n{\"step\":2}\n{\"step\":3,\"again\":true}\n");
  run.status({.reason = "SIGUSR1", .step = 3, .first_step = 2, .total = 9});
  const auto j = nlohmann::json::parse(text_of(run.path("status.json")));
  BOOST_TEST(j.at("reason") == "SIGUSR1");
  BOOST_TEST(j.at("step") == 3);
  BOOST_TEST(j.at("first_step") == 2);
  BOOST_TEST(j.at("total_steps") == 9);
  BOOST_TEST(run.checkpoint(120) == run.path("checkpoints/step-000120.h5"));
}

BOOST_AUTO_TEST_CASE(a_folder_below_a_file_cannot_be_made) {
  const TempFolder folder;
  folder.write("file", "text");
  CpuQueue queue;
  const auto self = make_self_comm(queue);
  check_refused(Exit::environment, {folder.path("file/run"), "cannot create", "run.dir"},
                [&] { RunFolder run(*self, folder.path("file/run")); });
}

BOOST_AUTO_TEST_SUITE_END()
