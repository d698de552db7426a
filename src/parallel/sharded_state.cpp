#include "parallel/sharded_state.h"
#include <algorithm>
#include <cstring>

namespace annulus {
Tensor UnitView::operator[](int i) const {
  return joined(i, 1);
}

Tensor UnitView::joined(int i, int count) const {
  const auto begin = static_cast<std::size_t>(i), end = begin + static_cast<std::size_t>(count);
  need(i >= 0 && count >= 1 && end <= unit_->parameters.size(), unit_->name + ": no such parameter");
  const Parameter& first = unit_->parameters[begin];
  need(!first.shape.empty() && first.shape.size() <= 3 && (first.shape.size() < 3 || count == 1),
       first.name + ": a parameter is a vector, a matrix or one stack of matrices");
  std::int64_t size = 0, rows = 0;
  for (std::size_t p = begin; p < end; ++p) {
    const Parameter& next = unit_->parameters[p];
    need(unit_->offsets[p] == unit_->offsets[begin] + size && next.shape.size() == first.shape.size() &&
             next.shape.back() == (first.shape.size() == 2 ? first.shape.back() : next.shape.back()),
         next.name + ": does not continue " + first.name);
    size += next.size();
    rows += next.shape.front();
  }
  if (!flat_) return {};
  Tensor t = flat_.span(unit_->offsets[begin], size);
  if (first.shape.size() == 2) t = t.view({rows, first.shape.back()});
  if (first.shape.size() == 3) t = t.view({rows, first.shape[1], first.shape[2]});
  t.name = first.name.c_str();
  return t;
}

ShardedState::ShardedState(Backend& backend, Arena& arena, std::vector<Unit> units, Comm& shard,
                           Comm& replica, StateOptions options, ExpertOwners experts)
    : backend_(backend),
      arena_(arena),
      host_(backend.queue(), backend.pinned()),
      units_(std::move(units)),
      shard_(shard),
      replica_(replica),
      experts_(experts),
      options_(options),
      gathered_(units_.size()),
      gradients_(units_.size()) {
  Queue& queue = backend_.queue();
  const auto zeroed = [&](Region region, const char* name, DType type, std::int64_t piece) {
    const Tensor t = arena_.keep(region, name, type, {piece});
    queue.zero(Lane::compute, t);
    return t;
  };
  const auto offloaded = [&](Region region, const char* name, DType type, std::int64_t piece) {
    const Tensor t = host_.keep(region, name, type, {piece});
    if (backend_.pinned().real()) std::memset(t.data, 0, static_cast<std::size_t>(t.bytes()));
    return t;
  };
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
    const Unit& unit = units_[static_cast<std::size_t>(u)];
    need(!is_experts(u) ||
             (experts_.shard != nullptr && experts_.replica != nullptr && experts_.world != nullptr),
         unit.name + ": no ranks are named that share experts");
    const int rank = this->shard(u).rank(), ranks = this->shard(u).size();
    held_.push_back(is_experts(u) ? part_of(unit, experts_.parts) : unit);
    const std::int64_t piece = held_.back().piece(ranks);
    UnitState& s = states_.emplace_back();
    s.segments = is_experts(u) ? segments_of_part(unit, experts_.part, experts_.parts, rank, ranks)
                               : segments_of(unit, rank, ranks);
    if (is_trained(unit) && offloads_masters()) {
      s.master = offloaded(Region::weights, "master weights", options_.state, piece);
      s.weight = zeroed(Region::weights, "weights", options_.compute, piece);
    } else {
      s.master = zeroed(Region::weights, "master weights",
                        is_trained(unit) ? options_.state : options_.compute, piece);
    }
    if (!is_trained(unit)) continue;
    s.grad = zeroed(Region::grads, "gradient shard", options_.gradients, piece);
    if (!options_.offload) {
      s.m = zeroed(Region::optimizer, "first moment", options_.state, piece);
      s.v = zeroed(Region::optimizer, "second moment", options_.state, piece);
      continue;
    }
    s.m = offloaded(Region::optimizer, "first moment", options_.state, piece);
    s.v = offloaded(Region::optimizer, "second moment", options_.state, piece);
  }
  square_sum_ = arena_.keep(Region::workspace, "square sum", DType::f64, {1});
  read_back_ =
      make_tensor("square sum", backend_.pinned().allocate(bytes_of(DType::f64), "the gradient norm"),
                  DType::f64, {1}, backend_.pinned().place());
}

ShardedState::~ShardedState() {
  backend_.pinned().release(read_back_.data);
}

bool ShardedState::gathers(int unit) {
  return shard(unit).size() > 1 || gathered_from(unit).dtype != options_.compute;
}

const Tensor& ShardedState::gathered_from(int unit) {
  const UnitState& s = state(unit);
  return s.weight ? s.weight : s.master;
}

bool ShardedState::scatters(int unit) const {
  return shard(unit).size() > 1 || options_.gradients != DType::f32;
}

Tensor ShardedState::own_piece(int unit, const Tensor& whole) const {
  const std::int64_t piece = whole.size() / shard(unit).size();
  return whole.span(shard(unit).rank() * piece, piece);
}

void ShardedState::prefetch(int unit) {
  Open& g = gathered_[static_cast<std::size_t>(unit)];
  if (g.live) return;
  g.live = true;
  const Tensor& master = gathered_from(unit);
  if (!gathers(unit)) {
    g.flat = master;
    g.ready = {};
    return;
  }
  // Masters change in another phase, so the gather need not wait for the compute lane: only for its place.
  Comm& group = shard(unit);
  g.flat = arena_.take(Region::weights, "gathered unit", options_.compute, {master.size() * group.size()},
                       Lane::gather);
  if (master.dtype == options_.compute) {
    group.all_gather(Lane::gather, master, g.flat);
  } else {
    const Tensor mine = own_piece(unit, g.flat);
    backend_.ops().cast(Lane::gather, {.from = master, .to = mine});
    group.all_gather(Lane::gather, mine, g.flat);
  }
  g.ready = backend_.queue().mark(Lane::gather);
}

UnitView ShardedState::use(int unit) {
  prefetch(unit);
  const Open& g = gathered_[static_cast<std::size_t>(unit)];
  backend_.queue().wait(Lane::compute, g.ready);
  return {held_[static_cast<std::size_t>(unit)], g.flat};
}

void ShardedState::drop(int unit) {
  Open& g = gathered_[static_cast<std::size_t>(unit)];
  need(g.live, units_[static_cast<std::size_t>(unit)].name + ": dropped, but not gathered");
  g.live = false;
  if (gathers(unit)) arena_.give(g.flat, Lane::compute);
}

void ShardedState::drop_unused() {
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
    if (!gathered_[static_cast<std::size_t>(unit)].live) continue;
    use(unit);
    drop(unit);
  }
}

UnitView ShardedState::open_gradient(int unit) {
  const Unit& u = held_[static_cast<std::size_t>(unit)];
  Open& g = gradients_[static_cast<std::size_t>(unit)];
  if (!trains(unit)) return {u, {}};
  const Tensor& own = state(unit).grad;
  if (!g.live) {
    g.live = true;
    g.flat = own;
    if (scatters(unit)) {
      g.flat = arena_.take(Region::grads, "unit gradient", DType::f32, {own.size() * shard(unit).size()});
      backend_.queue().zero(Lane::compute, g.flat);
    }
  }
  return {u, g.flat};
}

void ShardedState::reduce(int unit) {
  if (!trains(unit)) return;
  Open& g = gradients_[static_cast<std::size_t>(unit)];
  need(g.live, units_[static_cast<std::size_t>(unit)].name + ": reduced, but no gradient is open");
  g.live = false;
  if (!scatters(unit)) return;
  Queue& queue = backend_.queue();
  const Tensor mine = own_piece(unit, g.flat);
  queue.wait(Lane::reduce, queue.mark(Lane::compute));
  shard(unit).reduce_scatter(Lane::reduce, g.flat, mine);
  backend_.ops().add(Lane::reduce, {.x = mine, .y = state(unit).grad});
  release_reduced();
  reducing_.push_back(g.flat);
}

void ShardedState::release_reduced() {
  for (const Tensor& flat : reducing_) arena_.give(flat, Lane::reduce);
  reducing_.clear();
}

void ShardedState::finish_gradients() {
  Queue& queue = backend_.queue();
  queue.wait(Lane::reduce, queue.mark(Lane::compute));
  for (int u = 0; u < static_cast<int>(states_.size()); ++u)
    if (state(u).grad) sum_over_replicas(u);
  queue.wait(Lane::compute, queue.mark(Lane::reduce));
}

void ShardedState::sum_over_replicas(int unit) {
  Comm& copies = replica(unit);
  const Tensor& grad = state(unit).grad;
  if (copies.size() == 1) return;
  if (grad.dtype == DType::f32) return copies.all_reduce(Lane::reduce, grad);
  const Tensor wide = arena_.take(Region::grads, "replicas' sum", DType::f32, {grad.size()}, Lane::reduce);
  backend_.ops().cast(Lane::reduce, {.from = grad, .to = wide});
  copies.all_reduce(Lane::reduce, wide);
  backend_.ops().cast(Lane::reduce, {.from = wide, .to = grad});
  arena_.give(wide, Lane::reduce);
}

void ShardedState::zero_gradients() {
  for (UnitState& s : states_)
    if (s.grad) backend_.queue().zero(Lane::compute, s.grad);
}

double ShardedState::square_sum(Owners owners) {
  Queue& queue = backend_.queue();
  queue.zero(Lane::compute, square_sum_);
  for (std::size_t u = 0; u < states_.size(); ++u)  // gaps are zero, so whole pieces count
    if (states_[u].grad && units_[u].owners == owners)
      backend_.ops().sum(Lane::compute, {.x = states_[u].grad, .out = square_sum_, .squares = true});
  queue.copy(Lane::compute, square_sum_, read_back_);
  queue.sync(queue.mark(Lane::compute));
  // The last hop is a copy too: a backend without memory leaves it out, and the sum is zero.
  double sum = 0;
  queue.copy(Lane::compute, read_back_, make_tensor("square sum", &sum, DType::f64, {1}));
  queue.sync(queue.mark(Lane::compute));
  return sum;
}

double ShardedState::gradient_square_sum() {
  double sum = shard_.sum(square_sum(Owners::all));
  // Experts lie all over the world; of their copies one counts.
  if (std::any_of(units_.begin(), units_.end(), [](const Unit& u) { return u.owners == Owners::experts; }))
    sum += experts_.world->sum(experts_.replica->rank() == 0 ? square_sum(Owners::experts) : 0.0);
  return sum;
}

void ShardedState::abandon() {
  for (Open& g : gathered_) g.live = false;
  for (Open& g : gradients_) g.live = false;
  reducing_.clear();
}

}  // namespace annulus
