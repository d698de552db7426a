#include "core/arena.h"
#include <algorithm>
#include <cstdio>
#include <iterator>

namespace annulus {
namespace {

constexpr std::int64_t kAlign = 256;
std::int64_t round_up(std::int64_t bytes) {
  return (std::max<std::int64_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign;
}

bool overlap(std::int64_t a, std::int64_t a_end, std::int64_t b, std::int64_t b_end) {
  return a < b_end && b < a_end;
}

/// Offsets for one phase: largest first, each at the lowest place free for its whole life.
std::int64_t place_phase(std::vector<Tenant>& tenants) {
  std::vector<std::int32_t> by_size(tenants.size());
  for (std::size_t i = 0; i < tenants.size(); ++i) by_size[i] = static_cast<std::int32_t>(i);
  std::stable_sort(by_size.begin(), by_size.end(), [&](std::int32_t a, std::int32_t b) {
    return tenants[static_cast<std::size_t>(a)].bytes > tenants[static_cast<std::size_t>(b)].bytes;
  });
  std::vector<const Tenant*> placed, rivals;  // placed: sorted by offset
  std::int64_t top = 0;
  for (std::int32_t i : by_size) {
    Tenant& t = tenants[static_cast<std::size_t>(i)];
    rivals.clear();
    for (const Tenant* p : placed)
      if (overlap(p->born, p->died, t.born, t.died)) rivals.push_back(p);
    std::int64_t at = 0;
    for (const Tenant* p : rivals) {
      if (at + t.bytes <= p->offset) break;
      at = std::max(at, p->offset + p->bytes);
    }
    t.offset = at;
    top = std::max(top, at + t.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), &t,
                                   [](const Tenant* a, const Tenant* b) { return a->offset < b->offset; }),
                  &t);
  }
  return top;
}

/// Earlier tenants whose bytes a tenant takes over from another lane: the last of each lane, since a lane
/// runs in order.
void find_predecessors(std::vector<Tenant>& tenants) {
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    Tenant& t = tenants[i];
    std::int32_t last[kLanes];
    std::fill(std::begin(last), std::end(last), -1);
    for (std::size_t j = 0; j < i; ++j) {
      const Tenant& e = tenants[j];
      if (e.last == t.lane || e.died > t.born ||
          !overlap(e.offset, e.offset + e.bytes, t.offset, t.offset + t.bytes))
        continue;
      std::int32_t& latest = last[static_cast<int>(e.last)];
      if (latest < 0 || tenants[static_cast<std::size_t>(latest)].died < e.died)
        latest = static_cast<std::int32_t>(j);
    }
    t.after.clear();
    std::copy_if(std::begin(last), std::end(last), std::back_inserter(t.after),
                 [](std::int32_t e) { return e >= 0; });
  }
}

struct Peak {
  std::int64_t bytes = 0;
  std::int64_t regions[kRegions] = {};
};

Peak peak_of(const std::vector<Tenant>& tenants) {
  std::int64_t end = 0;
  for (const Tenant& t : tenants) end = std::max(end, t.died);
  std::vector<std::vector<const Tenant*>> births(static_cast<std::size_t>(end) + 1), deaths(births);
  for (const Tenant& t : tenants) {
    births[static_cast<std::size_t>(t.born)].push_back(&t);
    deaths[static_cast<std::size_t>(t.died)].push_back(&t);
  }
  Peak now, best;
  for (std::size_t c = 0; c < births.size(); ++c) {
    for (const Tenant* t : deaths[c])
      now.bytes -= t->bytes, now.regions[static_cast<int>(t->region)] -= t->bytes;
    for (const Tenant* t : births[c])
      now.bytes += t->bytes, now.regions[static_cast<int>(t->region)] += t->bytes;
    if (now.bytes > best.bytes) best = now;
  }
  return best;
}

}  // namespace

const char* name_of(Region r) {
  constexpr const char* names[] = {"weights", "grads", "optimizer", "saved", "workspace", "comm"};
  return names[static_cast<int>(r)];
}

std::int64_t Layout::kept_bytes() const {
  std::int64_t sum = 0;
  for (const Kept& k : kept) sum += k.bytes;
  return sum;
}

void pack(Layout& layout) {
  layout.pool_bytes = layout.live_bytes = 0;
  Peak best;
  for (auto& [name, tenants] : layout.phases) {
    layout.pool_bytes = std::max(layout.pool_bytes, place_phase(tenants));
    find_predecessors(tenants);
    const Peak peak = peak_of(tenants);
    if (peak.bytes > best.bytes) best = peak;
  }
  layout.live_bytes = best.bytes;
  std::copy(std::begin(best.regions), std::end(best.regions), std::begin(layout.region_bytes));
  for (const Layout::Kept& k : layout.kept) layout.region_bytes[static_cast<int>(k.region)] += k.bytes;
}

Arena::Arena(Queue& queue, Memory& memory) : queue_(queue), memory_(memory) {}

Arena::Arena(Queue& queue, Memory& memory, Layout layout)
    : queue_(queue), memory_(memory), planned_(true), layout_(std::move(layout)) {
  if (layout_.pool_bytes > 0)
    pool_ = static_cast<char*>(memory_.allocate(layout_.pool_bytes, "the pool of temporaries"));
}

Arena::~Arena() {
  for (auto& [data, live] : live_)
    if (live.own != nullptr) memory_.release(live.own);
  for (void* p : kept_) memory_.release(p);
  if (pool_ != nullptr) memory_.release(pool_);
}

Place Arena::place() const {
  return memory_.place();
}

Tensor Arena::keep(Region region, const char* name, DType dtype, std::initializer_list<std::int64_t> shape) {
  Tensor t = make_tensor(name, nullptr, dtype, shape, memory_.place());
  const std::int64_t bytes = round_up(t.bytes());
  t.data = memory_.allocate(bytes, name);
  kept_.push_back(t.data);
  kept_bytes_ += bytes;
  if (!planned_) layout_.kept.push_back({region, name, bytes});
  peak_ = std::max(peak_, kept_bytes_ + live_bytes_);
  return t;
}

void Arena::begin(const std::string& phase) {
  need(live_.empty(), "arena: phase " + phase + " begins while a temporary of " + phase_name_ + " lives");
  queue_.fence();
  if (planned_) {
    const auto found = layout_.phases.find(phase);
    need(found != layout_.phases.end(), "arena: phase " + phase + " was never recorded");
    phase_ = &found->second;
    freed_.assign(phase_->size(), Mark{});
    awaited_.assign(phase_->size(), 0);
    for (const Tenant& t : *phase_)
      for (std::int32_t e : t.after) awaited_[static_cast<std::size_t>(e)] = 1;
  } else {
    phase_ = &layout_.phases[phase];
    phase_->clear();
  }
  phase_name_ = phase;
  next_ = 0;
  clock_ = 0;
}

void Arena::abandon() {
  queue_.fence();
  queue_.sync(queue_.mark(Lane::compute));
  for (auto& [data, live] : live_)
    if (live.own != nullptr) memory_.release(live.own);
  live_.clear();
  live_bytes_ = 0;
  phase_ = nullptr;
}

Tensor Arena::take(Region region, const char* name, DType dtype, std::initializer_list<std::int64_t> shape,
                   Lane lane) {
  need(phase_ != nullptr, std::string("arena: take of ") + name + " outside a phase");
  Tensor t = make_tensor(name, nullptr, dtype, shape, memory_.place());
  const std::int64_t bytes = round_up(t.bytes());
  Live live{static_cast<std::int32_t>(next_), nullptr};
  if (planned_) {
    need(next_ < phase_->size() && (*phase_)[next_].bytes == bytes && (*phase_)[next_].lane == lane,
         std::string("arena: ") + phase_name_ + " takes " + name + " where the plan has " +
             (next_ < phase_->size() ? (*phase_)[next_].name : "nothing"));
    const Tenant& tenant = (*phase_)[next_];
    for (std::int32_t e : tenant.after) queue_.wait(lane, freed_[static_cast<std::size_t>(e)]);
    t.data = pool_ + tenant.offset;
  } else {
    phase_->push_back({region, name, bytes, clock_, clock_ + 1, lane, lane, 0, {}});
    t.data = live.own = memory_.allocate(bytes, name);
  }
  ++next_;
  ++clock_;
  need(live_.emplace(t.data, live).second,
       std::string("arena: ") + name + " lies where another tenant lives");
  live_bytes_ += bytes;
  peak_ = std::max(peak_, kept_bytes_ + live_bytes_);
  return t;
}

void Arena::give(const Tensor& t, Lane last) {
  const auto found = live_.find(t.data);
  need(found != live_.end(), std::string("arena: ") + t.name + " is given back but is not alive");
  const auto tenant = static_cast<std::size_t>(found->second.tenant);
  live_bytes_ -= (*phase_)[tenant].bytes;
  if (planned_) {
    need((*phase_)[tenant].last == last,
         std::string("arena: ") + t.name + " ends on another lane than planned");
    if (awaited_[tenant] != 0) freed_[tenant] = queue_.mark(last);
  } else {
    Tenant& record = (*phase_)[tenant];
    record.died = clock_;
    record.last = last;
    queue_.sync(queue_.mark(last));  // loose memory goes back at once, so its last reader must be done
    memory_.release(found->second.own);
  }
  ++clock_;
  live_.erase(found);
}

Layout Arena::layout() const {
  Layout packed = layout_;
  pack(packed);
  return packed;
}

std::int64_t Arena::peak_bytes() const {
  return planned_ ? kept_bytes_ + layout_.pool_bytes : peak_;
}

Scope::~Scope() {
  if (std::uncaught_exceptions() > exceptions_) return;  // the phase is abandoned as a whole
  try {
    for (auto t = held_.rbegin(); t != held_.rend(); ++t) arena_.give(*t);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "warning: %s\n", e.what());
  }
}

void Scope::give(const Tensor& t) {
  const auto found =
      std::find_if(held_.begin(), held_.end(), [&](const Tensor& h) { return h.data == t.data; });
  need(found != held_.end(), std::string("scope: ") + t.name + " is not held here");
  arena_.give(*found);
  held_.erase(found);
}

}  // namespace annulus
