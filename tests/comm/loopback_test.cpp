#include <boost/test/unit_test.hpp>
#include <numeric>
#include "comm/comm.h"
#include "ops/backend.h"

using namespace annulus;

namespace {

Tensor view(std::vector<float>& x) {
  return make_tensor("x", x.data(), DType::f32, {static_cast<std::int64_t>(x.size())});
}

std::int64_t sent(const Traffic& t, Collective what, Lane lane) {
  return t.bytes[static_cast<int>(what)][static_cast<int>(lane)];
}

struct Fixture {
  std::unique_ptr<Backend> backend = make_cpu_backend(1);
  Traffic traffic;
  Scale scale = [](Lane, const Tensor& t, double factor) {
    for (std::int64_t i = 0; i < t.size(); ++i) t.as<float>()[i] *= static_cast<float>(factor);
  };
  std::unique_ptr<Comm> group = make_loopback_comm(backend->queue(), 3, 5, &traffic, scale);
};

}  // namespace

BOOST_AUTO_TEST_SUITE(comm)

BOOST_FIXTURE_TEST_CASE(loopback_peers_hold_what_this_rank_holds, Fixture) {
  BOOST_TEST((group->rank() == 3 && group->size() == 5 && std::string(group->kind()) == "loopback"));
  std::vector<float> x{1, -2, 3};
  group->all_reduce(Lane::compute, view(x));
  BOOST_TEST(x == (std::vector<float>{5, -10, 15}), boost::test_tools::per_element());
  group->all_reduce(Lane::compute, view(x), Reduce::max);
  BOOST_TEST(x[0] == 5);

  std::vector<float> mine{7, 8}, all(10, 0.f);
  group->all_gather(Lane::gather, view(mine), view(all));
  BOOST_TEST(all == (std::vector<float>{7, 8, 7, 8, 7, 8, 7, 8, 7, 8}), boost::test_tools::per_element());
  std::iota(all.begin(), all.end(), 0.f);
  group->all_gather(Lane::gather, view(all).span(6, 2), view(all));  // in place
  BOOST_TEST(all == (std::vector<float>{6, 7, 6, 7, 6, 7, 6, 7, 6, 7}), boost::test_tools::per_element());

  std::iota(all.begin(), all.end(), 0.f);
  group->reduce_scatter(Lane::reduce, view(all), view(mine));
  BOOST_TEST(mine == (std::vector<float>{30, 35}), boost::test_tools::per_element());
  group->reduce_scatter(Lane::reduce, view(all), view(all).span(6, 2));
  BOOST_TEST((all[6] == 30 && all[7] == 35));
}

BOOST_FIXTURE_TEST_CASE(loopback_exchange_repeats_its_own_sends, Fixture) {
  std::vector<float> a{1, 2, 3}, b{4}, x(7, 0.f), y(2, 0.f), z(3, 0.f), none;
  const Send sends[] = {{4, view(a)}, {0, view(none)}, {2, view(b)}};
  const Receive receives[] = {{2, view(x)}, {4, view(y)}, {1, view(none)}, {0, view(z)}};
  group->exchange(Lane::ring, sends, receives);
  BOOST_TEST(x == (std::vector<float>{1, 2, 3, 1, 2, 3, 1}), boost::test_tools::per_element());
  BOOST_TEST(y == (std::vector<float>{4, 4}), boost::test_tools::per_element());
  BOOST_TEST(z == (std::vector<float>{1, 2, 3}), boost::test_tools::per_element());
  group->exchange(Lane::ring, {}, std::span(receives, 1));
  BOOST_TEST(x == std::vector<float>(7, 0.f), boost::test_tools::per_element());
  BOOST_TEST(sent(traffic, Collective::exchange, Lane::ring) == 16);
}

/// Peers send what this rank sends itself: rows and what goes with them fit together.
BOOST_FIXTURE_TEST_CASE(loopback_exchange_repeats_what_a_rank_sends_itself, Fixture) {
  std::vector<float> rows{1, 2, 3, 4}, shares{7, 8}, other{5}, none;
  std::vector<float> got_rows(4), got_shares(2), own_rows(4), own_shares(2);
  const Send sends[] = {{1, view(other)}, {3, view(rows)}, {3, view(shares)}};
  const Receive receives[] = {
      {0, view(got_rows)}, {0, view(got_shares)}, {3, view(own_rows)}, {3, view(own_shares)}};
  group->exchange(Lane::dispatch, sends, receives);
  BOOST_TEST(got_rows == rows, boost::test_tools::per_element());
  BOOST_TEST(got_shares == shares, boost::test_tools::per_element());
  BOOST_TEST(own_rows == rows, boost::test_tools::per_element());
  BOOST_TEST(own_shares == shares, boost::test_tools::per_element());
  BOOST_TEST(sent(traffic, Collective::exchange, Lane::dispatch) == 4);
  const std::int64_t numbers[] = {4, -2};
  const std::vector<std::int64_t> all = group->all_gather(std::span(numbers));
  BOOST_TEST((all.size() == 10 && all[8] == 4 && all[9] == -2));
}

BOOST_FIXTURE_TEST_CASE(loopback_counts_bytes_by_collective_and_lane, Fixture) {
  std::vector<float> mine(20), all(100);
  group->all_gather(Lane::gather, view(mine), view(all));
  group->reduce_scatter(Lane::reduce, view(all), view(mine));
  group->all_reduce(Lane::reduce, view(all));
  const std::vector<Send> sends{{1, view(mine)}, {3, view(mine)}};  // the second stays at home
  group->exchange(Lane::ring, sends, {});
  group->split(0)->all_gather(Lane::gather, view(mine), view(all));  // counted with its parent
  BOOST_TEST(sent(traffic, Collective::all_gather, Lane::gather) == 2 * 4 * 80);
  BOOST_TEST(sent(traffic, Collective::reduce_scatter, Lane::reduce) == 4 * 80);
  BOOST_TEST(sent(traffic, Collective::all_reduce, Lane::reduce) == 2 * 4 * 80);
  BOOST_TEST(sent(traffic, Collective::exchange, Lane::ring) == 80);
  BOOST_TEST(traffic.calls[static_cast<int>(Collective::all_gather)][static_cast<int>(Lane::gather)] == 2);
  BOOST_TEST(traffic.total() == 320 * 5 + 80);
}

BOOST_FIXTURE_TEST_CASE(loopback_host_face, Fixture) {
  BOOST_TEST(group->sum(std::int64_t{7}) == 35);
  BOOST_TEST(group->sum(0.5) == 2.5);
  BOOST_TEST(group->max(7) == 7);
  BOOST_TEST(group->all_gather("ab") == std::vector<std::string>(5, "ab"), boost::test_tools::per_element());
  std::string bytes = "as it was";
  group->broadcast(bytes, 1);
  BOOST_TEST(bytes == "as it was");
  BOOST_CHECK_THROW(make_loopback_comm(backend->queue(), 5, 5), Error);
}

BOOST_FIXTURE_TEST_CASE(loopback_splits_by_what_a_rank_would_say, Fixture) {
  const auto same = group->split(9);
  BOOST_TEST((same->rank() == 3 && same->size() == 5));
  const auto odd = group->split_by([](int rank) { return rank % 2; });
  BOOST_TEST((odd->rank() == 1 && odd->size() == 2));
  const auto front = make_loopback_comm(backend->queue(), 4, 6)->split_by([](int rank) { return rank / 3; });
  BOOST_TEST((front->rank() == 1 && front->size() == 3));
}

namespace {

/// Writes down how long transfers are to take.
class TransferLog : public Queue {
 public:
  Mark mark(Lane) override { return {}; }
  void wait(Lane, Mark) override {}
  void sync(Mark) override {}
  void copy(Lane, const Tensor&, const Tensor&) override { copies += open ? 1 : 0; }
  void zero(Lane, const Tensor&) override {}
  void begin_transfer(Lane) override { open = true; }
  void end_transfer(Lane, double s) override {
    open = false;
    seconds.push_back(s);
  }
  bool open = false;
  int copies = 0;  // within transfers
  std::vector<double> seconds;
};

}  // namespace

BOOST_AUTO_TEST_CASE(pretended_transfers_take_as_long_as_their_links) {
  TransferLog log;
  const Links links{.near = 100, .far = 10, .latency = 1};
  std::vector<float> mine(3), all(18), sums(12);  // 12, 72 and 48 bytes
  const auto took = [&](Comm& group, auto call) {
    log.seconds.clear();
    call(group);
    return log.seconds.empty() ? 0.0 : log.seconds.back();
  };
  const auto gather = [&](Comm& g) { g.all_gather(Lane::gather, view(mine), view(all)); };
  const auto reduce = [&](Comm& g) { g.reduce_scatter(Lane::reduce, view(all), view(mine)); };
  const auto sum = [&](Comm& g) { g.all_reduce(Lane::reduce, view(sums)); };
  const auto shift = [&](Comm& g) {
    const Send send[] = {{1, view(mine)}};
    const Receive receive[] = {{5, view(sums).span(0, 3)}};
    g.exchange(Lane::ring, send, receive);
  };
  const auto spread = [&](Comm& g) {
    const Send sends[] = {{0, view(mine)}, {1, view(mine)}, {2, view(mine)}, {3, view(mine)}};
    const Receive receives[] = {{1, view(sums).span(0, 3)}};
    g.exchange(Lane::dispatch, sends, receives);
  };
  const auto near = make_loopback_comm(log, 0, std::vector<int>(6, 4), nullptr, links);
  const auto close = boost::test_tools::tolerance(1e-12);
  BOOST_TEST(took(*near, gather) == 1 + 12 * 5 / 100.0, close);
  BOOST_TEST(log.copies > 0);
  BOOST_TEST(took(*near, reduce) == 1 + 12 * 5 / 100.0, close);
  BOOST_TEST(took(*near, sum) == 2 * (1 + 8 * 5 / 100.0), close);
  BOOST_TEST(took(*near, shift) == 1 + 12 / 100.0, close);
  BOOST_TEST(took(*near, spread) == 1 + 36 / 100.0, close);  // to itself nothing is sent
  // Two nodes of three: what comes from outside, over three links side by side; a shift at the slowest pace.
  const auto far = make_loopback_comm(log, 0, {0, 0, 0, 1, 1, 1}, nullptr, links);
  BOOST_TEST(took(*far, gather) == 1 + 36 / 30.0, close);
  BOOST_TEST(took(*far, shift) == 1 + 12 / 10.0, close);
  BOOST_TEST(took(*far, spread) == 1 + 12 / 10.0, close);
  const auto pair = far->split_by([](int rank) { return rank / 2; });
  BOOST_TEST(pair->size() == 2);
  std::vector<float> two(6);
  BOOST_TEST(
      took(*pair, [&](Comm& g) { g.all_gather(Lane::gather, view(mine), view(two)); }) == 1 + 12 / 100.0,
      close);
  // Without links, and alone, a transfer takes as long as its copies.
  const auto free = make_loopback_comm(log, 0, 6);
  BOOST_TEST(took(*free, shift) == 0);
  const auto alone = make_loopback_comm(log, 0, std::vector<int>{0}, nullptr, links);
  BOOST_TEST(took(*alone, sum) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
