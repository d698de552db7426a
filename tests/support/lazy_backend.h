// A backend that runs nothing when it is called: work waits on its lane, as on a device, and is run later in
// the least convenient order that the marks allow. What forgets a mark computes with the wrong data.
#pragma once
#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <vector>
#include "core/rng.h"
#include "ops/backend.h"

namespace annulus::test {

class LazyQueue : public Queue {
 public:
  /// Lanes run as far as they can in the order of `first`, then `first` again from its start; `seed` not 0:
  /// every next lane is drawn.
  LazyQueue(Queue& real, Lane favourite, std::uint64_t seed)
      : real_(real), favourite_(favourite), seed_(seed) {}

  Mark mark(Lane lane) override {
    marks_.push_back({lane, queued_[at(lane)]});
    return {marks_.size()};
  }
  void wait(Lane lane, Mark mark) override {
    if (mark.id != 0) lanes_[at(lane)].push_back({mark, {}});
    if (mark.id != 0) ++queued_[at(lane)];
  }
  void sync(Mark mark) override {
    while (!passed(mark)) step();
  }
  void copy(Lane lane, const Tensor& from, const Tensor& to) override {
    push(lane, [this, lane, from, to] { real_.copy(lane, from, to); });
  }
  void zero(Lane lane, const Tensor& t) override {
    push(lane, [this, lane, t] { real_.zero(lane, t); });
  }
  void push(Lane lane, std::function<void()> work) {
    lanes_[at(lane)].push_back({{}, std::move(work)});
    ++queued_[at(lane)];
  }
  void run_all() {
    while (pending()) step();
  }

 private:
  struct Item {
    Mark wait;
    std::function<void()> work;
  };
  struct Point {
    Lane lane;
    std::int64_t count;
  };
  static std::size_t at(Lane lane) { return static_cast<std::size_t>(lane); }
  bool passed(Mark mark) const {
    if (mark.id == 0) return true;
    const Point& p = marks_[mark.id - 1];
    return done_[at(p.lane)] >= p.count;
  }
  bool pending() const {
    for (const auto& lane : lanes_)
      if (!lane.empty()) return true;
    return false;
  }
  bool runs(std::size_t lane) {
    if (lanes_[lane].empty() || !passed(lanes_[lane].front().wait)) return false;
    Item item = std::move(lanes_[lane].front());
    lanes_[lane].pop_front();
    if (item.work) item.work();
    ++done_[lane];
    return true;
  }
  void step() {
    std::size_t first = at(favourite_);
    if (seed_ != 0) first = draw(seed_, Draw::test, 0, drawn_++)[0] % kLanes;
    for (std::size_t i = 0; i < kLanes; ++i)
      if (runs((first + i) % kLanes)) return;
    fail("lazy queue", "lanes wait for one another, or for work that nobody has queued");
  }

  Queue& real_;
  Lane favourite_;
  std::uint64_t seed_, drawn_ = 0;
  std::array<std::deque<Item>, kLanes> lanes_;
  std::array<std::int64_t, kLanes> queued_{}, done_{};
  std::vector<Point> marks_;
};

class LazyOps : public Ops {
 public:
  LazyOps(Ops& real, LazyQueue& queue) : real_(real), queue_(queue) {}
  const char* kind() const override { return real_.kind(); }
  void embed_fwd(Lane l, const EmbedFwd& a) override { later(l, &Ops::embed_fwd, a); }
  void embed_bwd(Lane l, const EmbedBwd& a) override { later(l, &Ops::embed_bwd, a); }
  void rmsnorm_fwd(Lane l, const RmsNormFwd& a) override { later(l, &Ops::rmsnorm_fwd, a); }
  void rmsnorm_bwd(Lane l, const RmsNormBwd& a) override { later(l, &Ops::rmsnorm_bwd, a); }
  void matmul(Lane l, const Matmul& a) override { later(l, &Ops::matmul, a); }
  void column_sum(Lane l, const ColumnSum& a) override { later(l, &Ops::column_sum, a); }
  void qk_rope_fwd(Lane l, const QkRopeFwd& a) override { later(l, &Ops::qk_rope_fwd, a); }
  void qk_rope_bwd(Lane l, const QkRopeBwd& a) override { later(l, &Ops::qk_rope_bwd, a); }
  void attention_fwd(Lane l, const AttentionFwd& a) override { later_blocks(l, &Ops::attention_fwd, a); }
  void attention_delta(Lane l, const AttentionDelta& a) override { later(l, &Ops::attention_delta, a); }
  void attention_bwd(Lane l, const AttentionBwd& a) override { later_blocks(l, &Ops::attention_bwd, a); }
  void swiglu_fwd(Lane l, const SwigluFwd& a) override { later(l, &Ops::swiglu_fwd, a); }
  void swiglu_bwd(Lane l, const SwigluBwd& a) override { later(l, &Ops::swiglu_bwd, a); }
  void loss_tile(Lane l, const LossTile& a) override { later(l, &Ops::loss_tile, a); }
  void sum(Lane l, const Sum& a) override { later(l, &Ops::sum, a); }
  void add(Lane l, const Add& a) override { later(l, &Ops::add, a); }
  void cast(Lane l, const Cast& a) override { later(l, &Ops::cast, a); }
  void adamw(Lane l, const AdamW& a) override { later(l, &Ops::adamw, a); }
  void route_fwd(Lane l, const RouteFwd& a) override { later(l, &Ops::route_fwd, a); }
  void route_bwd(Lane l, const RouteBwd& a) override { later(l, &Ops::route_bwd, a); }
  void route_count(Lane l, const RouteCount& a) override { later(l, &Ops::route_count, a); }
  void dispatch_index(Lane l, const DispatchIndex& a) override { later(l, &Ops::dispatch_index, a); }
  void expert_index(Lane l, const ExpertIndex& a) override { later(l, &Ops::expert_index, a); }
  void gather_rows(Lane l, const GatherRows& a) override { later(l, &Ops::gather_rows, a); }
  void combine_rows(Lane l, const CombineRows& a) override { later(l, &Ops::combine_rows, a); }
  void expert_swiglu_bwd(Lane l, const ExpertSwigluBwd& a) override { later(l, &Ops::expert_swiglu_bwd, a); }
  /// Offsets are host memory that is read during the call: a copy stands in for them.
  void grouped_matmul(Lane l, const GroupedMatmul& a) override {
    auto offsets = std::make_shared<std::vector<std::int64_t>>(a.offsets.begin(), a.offsets.end());
    queue_.push(l, [this, l, a, offsets] {
      GroupedMatmul now = a;
      now.offsets = *offsets;
      real_.grouped_matmul(l, now);
    });
  }
  std::int64_t attention_fwd_bytes(const AttentionFwd& a) const override {
    return real_.attention_fwd_bytes(a);
  }
  std::int64_t attention_bwd_bytes(const AttentionBwd& a) const override {
    return real_.attention_bwd_bytes(a);
  }

 private:
  template <class A>
  void later(Lane lane, void (Ops::*op)(Lane, const A&), const A& a) {
    queue_.push(lane, [this, lane, op, a] { (real_.*op)(lane, a); });
  }
  /// Blocks are host memory that is read during the call: a copy stands in for them.
  template <class A>
  void later_blocks(Lane lane, void (Ops::*op)(Lane, const A&), const A& a) {
    auto blocks = std::make_shared<std::vector<AttentionBlock>>(a.blocks.begin(), a.blocks.end());
    queue_.push(lane, [this, lane, op, a, blocks] {
      A now = a;
      now.blocks = *blocks;
      (real_.*op)(lane, now);
    });
  }
  Ops& real_;
  LazyQueue& queue_;
};

/// The tensor face waits on its lane; the host face acts at once.
class LazyComm : public Comm {
 public:
  LazyComm(std::unique_ptr<Comm> real, LazyQueue& queue) : real_(std::move(real)), queue_(queue) {}
  int rank() const override { return real_->rank(); }
  int size() const override { return real_->size(); }
  const char* kind() const override { return real_->kind(); }
  void all_reduce(Lane lane, const Tensor& t, Reduce reduce) override {
    queue_.push(lane, [this, lane, t, reduce] { real_->all_reduce(lane, t, reduce); });
  }
  void all_gather(Lane lane, const Tensor& mine, const Tensor& all) override {
    queue_.push(lane, [this, lane, mine, all] { real_->all_gather(lane, mine, all); });
  }
  void reduce_scatter(Lane lane, const Tensor& all, const Tensor& mine) override {
    queue_.push(lane, [this, lane, all, mine] { real_->reduce_scatter(lane, all, mine); });
  }
  void exchange(Lane lane, std::span<const Send> sends, std::span<const Receive> receives) override {
    std::vector<Send> s(sends.begin(), sends.end());
    std::vector<Receive> r(receives.begin(), receives.end());
    queue_.push(lane, [this, lane, s, r] { real_->exchange(lane, s, r); });
  }
  void all_reduce(std::span<std::int64_t> v, Reduce reduce) override { real_->all_reduce(v, reduce); }
  void all_reduce(std::span<double> v, Reduce reduce) override { real_->all_reduce(v, reduce); }
  std::vector<std::string> all_gather(const std::string& mine) override { return real_->all_gather(mine); }
  void broadcast(std::string& bytes, int root) override { real_->broadcast(bytes, root); }
  void barrier() override { real_->barrier(); }
  std::unique_ptr<Comm> split(int color) const override {
    return std::make_unique<LazyComm>(real_->split(color), queue_);
  }

 private:
  std::unique_ptr<Comm> real_;
  LazyQueue& queue_;
};

/// `real`, delayed. Groups of ranks are made with the real queue and wrapped by device_comm.
class LazyBackend : public Backend {
 public:
  LazyBackend(Backend& real, Lane favourite, std::uint64_t seed = 0)
      : real_(real), queue_(real.queue(), favourite, seed), ops_(real.ops(), queue_) {}
  LazyQueue& queue() override { return queue_; }
  Memory& memory() override { return real_.memory(); }
  Memory& pinned() override { return real_.pinned(); }
  Ops& ops() override { return ops_; }
  std::unique_ptr<Comm> device_comm(std::unique_ptr<Comm> group) override {
    return std::make_unique<LazyComm>(std::move(group), queue_);
  }
  std::int64_t device_used_bytes() const override { return real_.device_used_bytes(); }
  std::string describe() const override { return "lazy " + real_.describe(); }

 private:
  Backend& real_;
  LazyQueue queue_;
  LazyOps ops_;
};

}  // namespace annulus::test
