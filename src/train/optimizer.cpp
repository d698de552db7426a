#include "train/optimizer.h"
#include <algorithm>

namespace annulus {
namespace {

/// Elements [from, from + count) of a rank's pieces, with the segments that lie there.
UnitState part_of(const UnitState& s, std::int64_t from, std::int64_t count) {
  UnitState part;
  for (Tensor UnitState::*field :
       {&UnitState::master, &UnitState::grad, &UnitState::m, &UnitState::v, &UnitState::weight})
    if (s.*field) part.*field = (s.*field).span(from, count);
  for (Segment segment : s.segments) {
    const std::int64_t begin = std::max(segment.at, from),
                       end = std::min(segment.at + segment.count, from + count);
    if (begin >= end) continue;
    segment.from += begin - segment.at;
    segment.count = end - begin;
    segment.at = begin - from;
    part.segments.push_back(segment);
  }
  return part;
}

}  // namespace

StateStream::StateStream(Backend& backend, Arena& arena, ShardedState& state, std::vector<Field> fields)
    : queue_(backend.queue()), arena_(arena), fields_(std::move(fields)) {
  if (fields_.empty()) return;
  for (int u = 0; u < static_cast<int>(state.units().size()); ++u)
    if (state.state(u).grad) slice_ = std::max(slice_, state.state(u).master.size());
  slice_ = std::min(slice_, state.options().slice);
  for (Slot& slot : slots_)
    for (std::size_t f = 0; f < fields_.size(); ++f)
      slot.fields.push_back(
          arena_.take(Region::optimizer, "passing state", state.options().state, {slice_}, Lane::in));
}

void StateStream::each(const UnitState& s, bool back, const std::function<void(const UnitState&)>& work) {
  if (fields_.empty()) return work(s);
  for (std::int64_t from = 0; from < s.master.size(); from += slice_) {
    const std::int64_t count = std::min(slice_, s.master.size() - from);
    Slot& slot = slots_[turn_++ % slots_.size()];
    const UnitState home = part_of(s, from, count);
    UnitState part = home;
    queue_.wait(Lane::in, slot.free);
    for (std::size_t f = 0; f < fields_.size(); ++f) {
      part.*fields_[f] = slot.fields[f].span(0, count);
      queue_.copy(Lane::in, home.*fields_[f], part.*fields_[f]);
    }
    queue_.wait(Lane::compute, queue_.mark(Lane::in));
    work(part);
    slot.free = queue_.mark(Lane::compute);
    if (!back) continue;
    queue_.wait(Lane::out, slot.free);
    for (Field field : fields_) queue_.copy(Lane::out, part.*field, home.*field);
    slot.free = queue_.mark(Lane::out);
  }
}

void StateStream::finish() {
  for (Slot& slot : slots_) {
    queue_.wait(Lane::out, slot.free);
    for (const Tensor& t : slot.fields) arena_.give(t, Lane::out);
  }
}

Optimizer::Optimizer(Backend& backend, Arena& arena, ShardedState& state, const OptimizerSection& section,
                     std::int64_t seed)
    : backend_(backend), arena_(arena), state_(state), section_(section), seed_(seed) {}

void Optimizer::update(double lr, double factor, std::int64_t step) {
  std::vector<StateStream::Field> away;
  if (state_.options().offload) away = {&UnitState::m, &UnitState::v};
  if (state_.offloads_masters()) away.push_back(&UnitState::master);
  StateStream stream(backend_, arena_, state_, away);
  for (int unit = 0; unit < static_cast<int>(state_.units().size()); ++unit) {
    if (!state_.state(unit).grad) continue;
    stream.each(state_.state(unit), true, [&](const UnitState& s) {
      for (const Segment& part : s.segments) {
        const Parameter& p = *part.parameter;
        backend_.ops().adamw(Lane::compute,
                             {.grad = s.grad.span(part.at, part.count),
                              .master = s.master.span(part.at, part.count),
                              .m = s.m.span(part.at, part.count),
                              .v = s.v.span(part.at, part.count),
                              .weight = s.weight ? s.weight.span(part.at, part.count) : Tensor{},
                              .lr = lr,
                              .beta1 = section_.beta1,
                              .beta2 = section_.beta2,
                              .eps = section_.eps,
                              .decay = p.decay ? section_.weight_decay : 0.0,
                              .grad_scale = factor,
                              .step = step,
                              .seed = static_cast<std::uint64_t>(seed_),
                              .parameter = p.id,
                              .from = part.from});
      }
    });
  }
  stream.finish();
}

void Optimizer::masters_filled() {
  if (!state_.offloads_masters()) return;
  arena_.begin("fill");
  StateStream stream(backend_, arena_, state_, {&UnitState::master});
  for (int unit = 0; unit < static_cast<int>(state_.units().size()); ++unit) {
    if (!state_.state(unit).weight) continue;
    stream.each(state_.state(unit), false, [&](const UnitState& s) {
      backend_.ops().cast(Lane::compute, {.from = s.master, .to = s.weight});
    });
  }
  stream.finish();
}

}  // namespace annulus
