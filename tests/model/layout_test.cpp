// The same numbers from any number of ranks, and exactly the dependences that a packed row has.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include "model/rig.h"
#include "support/backends.h"
#include "support/world.h"

using namespace annulus;
using namespace annulus::test;

namespace {

struct Ranks {
  Backend* backend = &tested();
  std::unique_ptr<Comm> world = session().world(backend->queue());
  int size = world->size();

  Rig rig(RigOptions options) { return Rig(*backend, world->split(0), std::move(options)); }
  /// Every way to lay these ranks out in rings and heads. Models have 2 key/value heads: four ranks that
  /// share heads need more.
  std::vector<RigOptions> layouts(bool tied, const LoraConfig& lora = {}) const {
    std::vector<RigOptions> all;
    for (int context = 1; context <= size; ++context)
      for (int ulysses = 1; ulysses <= context; ++ulysses)
        for (int per_member : {1, 3}) {
          if (size % context != 0 || context % ulysses != 0) continue;
          RigOptions o{.context = context, .ulysses = ulysses, .per_member = per_member};
          o.config.tied = tied;
          o.config.qkv_bias = true;
          o.config.H = 12;
          o.model.lora = lora;
          const std::int64_t heads = share_heads(o.config.H, o.config.G, ulysses).G;
          o.groups = per_member == 1 ? 1 : heads;
          all.push_back(o);
        }
    return all;
  }
};

std::string name_of(const RigOptions& o) {
  return "context " + std::to_string(o.context) + " ulysses " + std::to_string(o.ulysses) + " chunks " +
         std::to_string(o.per_member);
}

const std::vector<std::int64_t> kDocuments{31, 1, 22, 3};
constexpr std::int64_t kSequence = 61;

/// The loss of one token, or of a stretch of them, when one input token is changed or not.
double loss_of(Rig& rig, WholeRow row, std::int64_t from, std::int64_t to, std::int64_t changed) {
  for (std::int64_t p = 0; p < row.shape.used; ++p)
    if (p < from || p >= to) row.targets[static_cast<std::size_t>(p)] = -1;
  if (changed >= 0) {
    std::int32_t& id = row.ids[static_cast<std::size_t>(changed)];
    id = (id + 1) % 101;
  }
  return rig.eval(row).nll;
}

void perturb() {
  Ranks ranks;
  for (RigOptions options : ranks.layouts(false)) {
    options.config.windows = {0, 0, 0};
    Rig rig = ranks.rig(options);
    const WholeRow row = make_row(kSequence, kDocuments, 101, 21);
    BOOST_TEST_INFO(name_of(options));
    // Document 0 is [0, 31), document 2 is [32, 54): neither sees the other.
    const double second = loss_of(rig, row, 32, 54, -1);
    for (std::int64_t p : {0, 17, 30, 31, 54, 56}) BOOST_TEST(loss_of(rig, row, 32, 54, p) == second);
    for (std::int64_t p : {32, 40, 52}) BOOST_TEST(loss_of(rig, row, 32, 54, p) != second);
    // Nothing sees what comes after it.
    const double early = loss_of(rig, row, 0, 12, -1);
    for (std::int64_t p : {12, 30}) BOOST_TEST(loss_of(rig, row, 0, 12, p) == early);
    // The last token of a row that spans the ring sees the first one.
    const WholeRow whole = make_row(kSequence, {kSequence}, 101, 22);
    const double last = loss_of(rig, whole, kSequence - 2, kSequence - 1, -1);
    BOOST_TEST(last > 0);
    BOOST_TEST(loss_of(rig, whole, kSequence - 2, kSequence - 1, 0) != last);
    BOOST_TEST(loss_of(rig, whole, kSequence - 2, kSequence - 1, kSequence - 1) == last);
  }
}

/// Three windows of 7 reach 18 tokens back.
void perturb_windows() {
  Ranks ranks;
  for (RigOptions options : ranks.layouts(false)) {
    options.config.windows = {7, 7, 7};
    Rig rig = ranks.rig(options);
    const WholeRow whole = make_row(kSequence, {kSequence}, 101, 23);
    const double last = loss_of(rig, whole, 50, 51, -1);
    BOOST_TEST_INFO(name_of(options));
    for (std::int64_t p : {0, 25, 31}) BOOST_TEST(loss_of(rig, whole, 50, 51, p) == last);
    for (std::int64_t p : {32, 44, 50}) BOOST_TEST(loss_of(rig, whole, 50, 51, p) != last);
  }
}

/// The same rows on one rank and on all: each data group takes the rows that fall to it.
void compare_layouts(const LoraConfig& lora = {}) {
  Ranks ranks;
  const int count = 4 % ranks.size == 0 ? 4 : 2 * ranks.size;  // every data group gets as many
  std::vector<WholeRow> rows;
  for (int i = 0; i < count; ++i)
    rows.push_back(i == 3 ? make_row(kSequence, {5}, 101, 30)
                          : make_row(kSequence, kDocuments, 101, static_cast<std::uint64_t>(31 + i)));
  for (const bool tied : {false, true}) {
    const auto backend = make_cpu_backend(1);
    RigOptions alone;
    alone.config.tied = tied;
    alone.config.qkv_bias = true;
    alone.config.H = 12;
    alone.model.lora = lora;
    Rig one(*backend, make_self_comm(backend->queue()), alone);
    double nll = 0;
    for (const WholeRow& row : rows) nll += one.train(row, 1.0 / 150).nll;
    const Gradients want = one.gradients();
    for (const RigOptions& options : ranks.layouts(tied, lora)) {
      Rig rig = ranks.rig(options);
      double mine = 0;
      const WholeRow none = make_row(kSequence, {}, 101, 0);  // where a group has no row left
      for (int first = 0; first < count; first += rig.grid().data) {
        const int i = first + rig.grid().data_index;
        mine += rig.train(i < count ? rows[static_cast<std::size_t>(i)] : none, 1.0 / 150).nll;
      }
      const double all = ranks.world->sum(mine) / options.context;
      BOOST_TEST_INFO("tied " << tied << " " << name_of(options));
      BOOST_TEST(std::abs(all - nll) <= 1e-6 * nll);
      BOOST_TEST(worst_leaf(rig.gradients(), want) <= 1e-5);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(model)

BOOST_AUTO_TEST_CASE(a_changed_token_moves_what_sees_it_alone) {
  perturb();
}
BOOST_AUTO_TEST_CASE(a_changed_token_moves_what_sees_it_alone_2, *boost::unit_test::label("ranks2")) {
  perturb();
}
BOOST_AUTO_TEST_CASE(a_changed_token_moves_what_sees_it_alone_3, *boost::unit_test::label("ranks3")) {
  perturb();
}
BOOST_AUTO_TEST_CASE(a_changed_token_moves_what_sees_it_alone_4, *boost::unit_test::label("ranks4")) {
  perturb();
}
BOOST_AUTO_TEST_CASE(windows_hide_what_lies_before_them) {
  perturb_windows();
}
BOOST_AUTO_TEST_CASE(windows_hide_what_lies_before_them_2, *boost::unit_test::label("ranks2")) {
  perturb_windows();
}
BOOST_AUTO_TEST_CASE(windows_hide_what_lies_before_them_4, *boost::unit_test::label("ranks4")) {
  perturb_windows();
}
BOOST_AUTO_TEST_CASE(chunks_and_groups_change_no_number) {
  compare_layouts();
}
BOOST_AUTO_TEST_CASE(layouts_give_the_same_numbers_2, *boost::unit_test::label("ranks2")) {
  compare_layouts();
}
BOOST_AUTO_TEST_CASE(layouts_give_the_same_numbers_3, *boost::unit_test::label("ranks3")) {
  compare_layouts();
}
BOOST_AUTO_TEST_CASE(chunks_and_groups_change_no_number_of_adapters) {
  compare_layouts(tiny_lora());
}
BOOST_AUTO_TEST_CASE(layouts_give_the_same_adapters_2, *boost::unit_test::label("ranks2")) {
  compare_layouts(tiny_lora());
}
BOOST_AUTO_TEST_CASE(layouts_give_the_same_adapters_3, *boost::unit_test::label("ranks3")) {
  compare_layouts(tiny_lora());
}
BOOST_AUTO_TEST_CASE(layouts_give_the_same_adapters_4, *boost::unit_test::label("ranks4")) {
  compare_layouts(tiny_lora());
}
BOOST_AUTO_TEST_CASE(layouts_give_the_same_numbers_4, *boost::unit_test::label("ranks4")) {
  compare_layouts();
}

BOOST_AUTO_TEST_SUITE_END()
