#include "parallel/expert_travel.h"

namespace annulus {
namespace {

/// Rows [begin, begin + count) of every tensor that there is.
ExpertRows rows_of(const ExpertRows& all, std::int64_t begin, std::int64_t count) {
  const auto part = [&](const Tensor& t) { return t ? t.rows(begin, count) : t; };
  return {.x = part(all.x), .slots = part(all.slots), .shares = part(all.shares), .dy = part(all.dy)};
}

/// Every rank's stretch of rows as one exchange: `pick` names the tensors that travel.
template <class Pick>
void exchange(Comm& group, const ExpertRows& out, const std::vector<std::int64_t>& sends,
              const ExpertRows& in, const std::vector<std::int64_t>& receives, Pick pick) {
  std::vector<Send> to;
  std::vector<Receive> from;
  std::int64_t at = 0, landed = 0;
  for (int r = 0; r < group.size(); ++r) {
    const std::int64_t n = sends[static_cast<std::size_t>(r)], m = receives[static_cast<std::size_t>(r)];
    for (const Tensor& t : pick(rows_of(out, at, n)))
      if (t && n > 0) to.push_back({r, t});
    for (const Tensor& t : pick(rows_of(in, landed, m)))
      if (t && m > 0) from.push_back({r, t});
    at += n;
    landed += m;
  }
  group.exchange(Lane::dispatch, to, from);
}

}  // namespace

ExpertGroup::ExpertGroup(Backend& backend, Arena& arena, Comm& group, std::int64_t E, std::int64_t K,
                         std::int64_t tile, double imbalance)
    : backend_(backend),
      arena_(arena),
      group_(group),
      shape_{.E = E, .K = K, .ranks = group.size(), .rank = group.rank()},
      tile_(tile),
      imbalance_(imbalance),
      host_(backend.queue(), backend.pinned()) {
  need(E % group.size() == 0, "experts: their ranks do not divide them");
}

std::vector<ExpertTile> ExpertGroup::tiles(const Tensor& ids) {
  const std::int64_t N = ids.shape[0];
  const ExpertBuffers b = buffers(N);
  const std::int64_t ranges = ranges_of(b, N), pairs = ranges * shape_.E, rows = ranges * shape_.ranks;
  if (!read_back_) read_back_ = host_.keep(Region::comm, "counts of experts", DType::i64, {pairs + rows});
  need(read_back_.size() == pairs + rows, "experts: rows of one run have the same number of local tokens");
  Queue& queue = backend_.queue();
  {
    Scope scope(arena_);
    const Tensor counts = scope.take("counts of experts", DType::i64, {pairs + rows}, Region::comm);
    backend_.ops().route_count(Lane::compute,
                               {.ids = ids,
                                .experts = counts.span(0, pairs).view({ranges, shape_.E}),
                                .rows = counts.span(pairs, rows).view({ranges, std::int64_t{shape_.ranks}}),
                                .range = b.range});
    queue.copy(Lane::compute, counts, read_back_);
    queue.sync(queue.mark(Lane::compute));
  }
  if (!backend_.pinned().real()) return even_tiles(shape_, b, N);
  const std::span<const std::int64_t> mine(read_back_.as<std::int64_t>(),
                                           static_cast<std::size_t>(read_back_.size()));
  return cut_tiles(shape_, b, N, group_.all_gather(mine));
}

ExpertRows ExpertTravel::take(Lane lane, std::int64_t rows, bool with_dy) {
  const auto one = [&](const char* name, DType type, std::int64_t columns) {
    return taken_.emplace_back(group_.arena().take(Region::comm, name, type, {rows, columns}, lane));
  };
  ExpertRows r;
  r.x = one("travelling rows", type_, C_);
  r.slots = one("travelling slots", DType::i32, K_);
  r.shares = one("travelling shares", DType::f32, K_);
  if (with_dy) r.dy = one("travelling gradients", type_, C_);
  return r;
}

ExpertTravel::ExpertTravel(ExpertGroup& group, const ExpertBuffers& b, std::int64_t C, DType type,
                           bool backward)
    : group_(group),
      queue_(group.arena().queue()),
      C_(C),
      K_(group.shape().K),
      type_(type),
      backward_(backward) {
  Arena& arena = group_.arena();
  const std::int64_t R = group_.shape().ranks;
  for (int i = 0; i < kHome; ++i) {
    home_[static_cast<std::size_t>(i)] = take(Lane::compute, b.sent, false);
    place_[static_cast<std::size_t>(i)] =
        taken_.emplace_back(arena.take(Region::comm, "places of rows", DType::i32, {b.tokens, R}));
  }
  for (Tensor& dy : dy_)
    if (backward) dy = taken_.emplace_back(arena.take(Region::comm, "leaving gradients", type, {b.sent, C}));
  // Rows that stay need no second place.
  if (R == 1) return;
  for (ExpertRows& slot : away_) slot = take(Lane::dispatch, b.received, backward);
}

ExpertRows ExpertTravel::home(int i, const ExpertTile& t) const {
  ExpertRows all = home_[static_cast<std::size_t>(i % kHome)];
  all.dy = dy_[static_cast<std::size_t>(i % kAway)];
  return rows_of(all, 0, t.sent);
}

Tensor ExpertTravel::place(int i, const ExpertTile& t) const {
  return place_[static_cast<std::size_t>(i % kHome)].rows(0, t.tokens);
}

ExpertRows ExpertTravel::away_slot(int i) const {
  if (group_.shape().ranks > 1) return away_[static_cast<std::size_t>(i % kAway)];
  ExpertRows same = home_[static_cast<std::size_t>(i % kHome)];
  same.dy = dy_[static_cast<std::size_t>(i % kAway)];
  return same;
}

void ExpertTravel::send(int i, const ExpertTile& t) {
  queue_.wait(Lane::dispatch, queue_.mark(Lane::compute));
  exchange(group_.comm(), home(i, t), t.sends, rows_of(away_slot(i), 0, t.received), t.receives,
           [](const ExpertRows& r) {
             return std::array{r.slots, r.shares, r.x, r.dy};
           });
  arrived_[static_cast<std::size_t>(i % kAway)] = queue_.mark(Lane::dispatch);
}

ExpertRows ExpertTravel::away(int i, const ExpertTile& t) {
  queue_.wait(Lane::compute, arrived_[static_cast<std::size_t>(i % kAway)]);
  return rows_of(away_slot(i), 0, t.received);
}

void ExpertTravel::send_back(int i, const ExpertTile& t) {
  queue_.wait(Lane::dispatch, queue_.mark(Lane::compute));
  exchange(group_.comm(), rows_of(away_slot(i), 0, t.received), t.receives, home(i, t), t.sends,
           [this](const ExpertRows& r) {
             return std::array{r.x, backward_ ? r.shares : Tensor{}};
           });
  back_[static_cast<std::size_t>(i % kHome)] = queue_.mark(Lane::dispatch);
}

ExpertRows ExpertTravel::returned(int i, const ExpertTile& t) {
  queue_.wait(Lane::compute, back_[static_cast<std::size_t>(i % kHome)]);
  return home(i, t);
}

void ExpertTravel::finish() {
  queue_.wait(Lane::compute, queue_.mark(Lane::dispatch));
  for (auto t = taken_.rbegin(); t != taken_.rend(); ++t) group_.arena().give(*t);
  taken_.clear();
}

}  // namespace annulus
