#include "parallel/ring_travel.h"
#include <algorithm>

namespace annulus {
namespace {

/// Slots that fill in turn: a ring of two fills one, once.
std::size_t turns(const Comm& ring) {
  return static_cast<std::size_t>(std::min(ring.size() - 1, 2));
}

}  // namespace

KeyValue heads_of(const Tensor& kv, std::int64_t begin, std::int64_t count) {
  need(kv.rank == 4 && kv.shape[0] == 2, std::string(kv.name) + ": not a pair of keys and values");
  const auto half = [&](std::int64_t i) {
    return kv.rows(i, 1).view({kv.shape[1], kv.shape[2], kv.shape[3]}).heads(begin, count);
  };
  return {half(0), half(1)};
}

Route::Route(const RowMap& map, std::int64_t window, int me) : me_(me) {
  for (int m = 0; m < map.ring(); ++m) reach_.push_back(map.reach(m, window));
}

TravellingKeys::TravellingKeys(Arena& arena, Comm& ring, std::int64_t rows, std::int64_t heads,
                               std::int64_t D, bool packed, DType type)
    : arena_(arena), queue_(arena.queue()), ring_(ring), packed_(packed) {
  const std::size_t count = ring.size() > 1 && packed ? 2 : turns(ring);
  for (std::size_t i = 0; i < count; ++i)
    slots_.push_back(
        {arena.take(Region::comm, "travelling keys", type, {2, rows, heads, D}, Lane::ring), {}, {}});
}

void TravellingKeys::start(const Route& route, const Tensor& kv, std::int64_t begin, std::int64_t count) {
  home_ = heads_of(kv, begin, count);
  home_sent_ = kv;
  if (!route.passes_on(0)) return;
  queue_.wait(Lane::ring, queue_.mark(Lane::compute));
  if (!packed_) return;
  // The second slot is idle until the first transfer, which empties it, is over.
  home_sent_ = slots_[1].kv;
  const KeyValue to = heads_of(home_sent_, 0, count);
  queue_.copy(Lane::ring, home_.k, to.k);
  queue_.copy(Lane::ring, home_.v, to.v);
}

void TravellingKeys::shift(const Route& route, int step) {
  std::vector<Send> sends;
  std::vector<Receive> receives;
  if (route.passes_on(step)) sends.push_back({route.up(1), step == 0 ? home_sent_ : slot(step).kv});
  if (route.holds(step + 1)) {
    queue_.wait(Lane::ring, slot(step + 1).free);
    receives.push_back({route.up(-1), slot(step + 1).kv});
  }
  if (sends.empty() && receives.empty()) return;
  ring_.exchange(Lane::ring, sends, receives);
  if (!receives.empty()) slot(step + 1).ready = queue_.mark(Lane::ring);
}

KeyValue TravellingKeys::at(int step) {
  if (step == 0) return home_;
  queue_.wait(Lane::compute, slot(step).ready);
  return heads_of(slot(step).kv, 0, slot(step).kv.shape[2]);
}

void TravellingKeys::used(int step) {
  if (step > 0) slot(step).free = queue_.mark(Lane::compute);
}

void TravellingKeys::finish() {
  queue_.wait(Lane::compute, queue_.mark(Lane::ring));
  for (Slot& s : slots_) arena_.give(s.kv);
}

TravellingSums::TravellingSums(Arena& arena, Comm& ring, Ops& ops, std::int64_t rows, std::int64_t heads,
                               std::int64_t D, std::int64_t passage)
    : arena_(arena), queue_(arena.queue()), ring_(ring), ops_(ops) {
  for (std::size_t i = 0; i < turns(ring); ++i)
    slots_.push_back(arena.take(Region::comm, "travelling key gradients", DType::f32, {2, rows, heads, D}));
  if (!slots_.empty())
    passage_ = arena.take(Region::comm, "passage of key gradients", DType::f32,
                          {std::min(passage, slots_[0].size())}, Lane::ring);
}

void TravellingSums::shift(const Route& route, int step) {
  queue_.wait(Lane::ring, queue_.mark(Lane::compute));  // the sum that leaves is complete
  bring_home(route, step);
  pass_on(route, step);
  arrived(step) = queue_.mark(Lane::ring);
}

void TravellingSums::bring_home(const Route& route, int step) {
  const int last = step - 1;
  const bool leaves = route.holds(last) && !route.passes_on(last);
  const bool returns = route.reach(route.up(0)) == last;
  if (!leaves && !returns) return;
  const std::int64_t size = slot(last).size();
  for (const auto [at, n] : Tiles(queue_, size, passage_.size())) {
    std::vector<Send> sends;
    std::vector<Receive> receives;
    if (leaves) sends.push_back({route.owner(last), slot(last).span(at, n)});
    if (returns) receives.push_back({route.up(last), passage_.span(0, n)});
    ring_.exchange(Lane::ring, sends, receives);
    if (returns) ops_.add(Lane::ring, {.x = passage_.span(0, n), .y = own_.span(at, n)});
  }
}

void TravellingSums::pass_on(const Route& route, int step) {
  const int last = step - 1;
  const bool leaves = route.passes_on(last), arrives = route.holds(step);
  if (!leaves && !arrives) return;
  const std::int64_t size = slot(last).size();
  for (const auto [at, n] : Tiles(queue_, size, passage_.size())) {
    const Tensor place = slot(last).span(at, n);
    const Tensor landing = leaves ? passage_.span(0, n) : place;
    std::vector<Send> sends;
    std::vector<Receive> receives;
    if (leaves) sends.push_back({route.up(1), place});
    if (arrives) receives.push_back({route.up(-1), landing});
    ring_.exchange(Lane::ring, sends, receives);
    if (leaves && arrives) queue_.copy(Lane::ring, landing, place);
  }
}

Tensor TravellingSums::open(int step) {
  queue_.wait(Lane::compute, arrived(step - 1));  // whose sum has left this slot
  queue_.zero(Lane::compute, slot(step));
  return slot(step);
}

void TravellingSums::join(int step) {
  queue_.wait(Lane::compute, arrived(step));
  const Tensor &part = slot(step), &sum = slot(step - 1);
  ops_.add(Lane::compute, {.x = sum.span(0, sum.size()), .y = part.span(0, part.size())});
}

void TravellingSums::finish() {
  queue_.wait(Lane::compute, queue_.mark(Lane::ring));
  for (const Tensor& s : slots_) arena_.give(s);
  if (passage_) arena_.give(passage_);
}

}  // namespace annulus
