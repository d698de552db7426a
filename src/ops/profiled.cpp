#include "ops/profiled.h"
#include <array>
#include <unordered_map>

namespace annulus {

/// Pairs of stamps, each of one kind.
class ProfiledBackend::Log {
 public:
  explicit Log(Queue& queue) : queue_(queue) {}
  template <class Work>
  void timed(const char* kind, Lane lane, Work work) {
    operations_.push_back(between_stamps(kind, lane, 0, work));
  }
  template <class Work>
  void transferred(const char* kind, Lane lane, std::int64_t bytes, Work work) {
    transfers_.push_back(between_stamps(kind, lane, bytes, work));
  }
  Profile take() {
    for (int l = 0; l < kLanes; ++l) queue_.sync(queue_.mark(static_cast<Lane>(l)));
    Profile profile{sums(operations_), sums(transfers_)};
    operations_.clear();
    transfers_.clear();
    queue_.forget_stamps();
    return profile;
  }

 private:
  struct Call {
    const char* kind;
    Stamp from, to;
    std::int64_t bytes;
  };
  template <class Work>
  Call between_stamps(const char* kind, Lane lane, std::int64_t bytes, Work work) {
    const Stamp from = queue_.stamp(lane);
    work();
    return {kind, from, queue_.stamp(lane), bytes};
  }
  std::map<std::string, OpTime> sums(const std::vector<Call>& calls) {
    std::map<std::string, OpTime> times;
    for (const Call& c : calls) {
      OpTime& t = times[c.kind];
      ++t.calls;
      t.seconds += queue_.seconds(c.from, c.to);
      t.bytes += c.bytes;
    }
    return times;
  }
  Queue& queue_;
  std::vector<Call> operations_, transfers_;
};

/// Passes everything on; what tensors do lies between two stamps of their lane.
class ProfiledBackend::TimedComm final : public Comm {
 public:
  TimedComm(std::unique_ptr<Comm> real, Log& log) : real_(std::move(real)), log_(log) {}
  int rank() const override { return real_->rank(); }
  int size() const override { return real_->size(); }
  const char* kind() const override { return real_->kind(); }

  void all_reduce(Lane lane, const Tensor& t, Reduce reduce) override {
    const std::int64_t R = size();
    timed(Collective::all_reduce, lane, 2 * t.bytes() * (R - 1) / R,
          [&] { real_->all_reduce(lane, t, reduce); });
  }
  void all_gather(Lane lane, const Tensor& mine, const Tensor& all) override {
    timed(Collective::all_gather, lane, mine.bytes() * (size() - 1),
          [&] { real_->all_gather(lane, mine, all); });
  }
  void reduce_scatter(Lane lane, const Tensor& all, const Tensor& mine) override {
    timed(Collective::reduce_scatter, lane, mine.bytes() * (size() - 1),
          [&] { real_->reduce_scatter(lane, all, mine); });
  }
  void exchange(Lane lane, std::span<const Send> sends, std::span<const Receive> receives) override {
    std::int64_t bytes = 0;
    for (const Send& s : sends) bytes += s.to != rank() ? s.data.bytes() : 0;
    timed(Collective::exchange, lane, bytes, [&] { real_->exchange(lane, sends, receives); });
  }

  void all_reduce(std::span<std::int64_t> v, Reduce reduce) override { real_->all_reduce(v, reduce); }
  void all_reduce(std::span<double> v, Reduce reduce) override { real_->all_reduce(v, reduce); }
  std::vector<std::string> all_gather(const std::string& mine) override { return real_->all_gather(mine); }
  std::vector<std::int64_t> all_gather(std::span<const std::int64_t> mine) override {
    return real_->all_gather(mine);
  }
  void broadcast(std::string& bytes, int root) override { real_->broadcast(bytes, root); }
  void barrier() override { real_->barrier(); }
  std::unique_ptr<Comm> split(int color) const override { return timed_too(real_->split(color)); }
  std::unique_ptr<Comm> split_by(const std::function<int(int)>& color) const override {
    return timed_too(real_->split_by(color));
  }
  std::unique_ptr<Comm> split_by_node() const override { return timed_too(real_->split_by_node()); }
  void* mpi_handle() const override { return real_->mpi_handle(); }

 private:
  std::unique_ptr<Comm> timed_too(std::unique_ptr<Comm> part) const {
    return std::make_unique<TimedComm>(std::move(part), log_);
  }
  template <class Work>
  void timed(Collective what, Lane lane, std::int64_t bytes, Work work) {
    static const auto kinds = [] {
      constexpr const char* collectives[kCollectives] = {"all-reduce", "all-gather", "reduce-scatter",
                                                         "exchange"};
      constexpr const char* lanes[kLanes] = {"compute", "ring", "gather", "reduce", "dispatch", "out", "in"};
      std::array<std::array<std::string, kLanes>, kCollectives> all;
      for (std::size_t c = 0; c < kCollectives; ++c)
        for (std::size_t l = 0; l < kLanes; ++l) all[c][l] = std::string(collectives[c]) + " on " + lanes[l];
      return all;
    }();
    log_.transferred(kinds[static_cast<std::size_t>(what)][static_cast<std::size_t>(lane)].c_str(), lane,
                     bytes, work);
  }
  std::unique_ptr<Comm> real_;
  Log& log_;
};

/// Passes everything on; the compute lane's waits for other lanes lie between two stamps.
class ProfiledBackend::TimedQueue final : public Queue {
 public:
  TimedQueue(Queue& real, Log& log) : real_(real), log_(log) {}
  Mark mark(Lane lane) override {
    const Mark m = real_.mark(lane);
    if (m.id != 0 && lane != Lane::compute) lanes_[m.id] = lane;
    return m;
  }
  void wait(Lane lane, Mark m) override {
    const auto of = lane == Lane::compute ? lanes_.find(m.id) : lanes_.end();
    if (of == lanes_.end()) return real_.wait(lane, m);
    constexpr const char* kinds[kLanes] = {"",
                                           "waiting for the ring",
                                           "waiting for weights",
                                           "waiting for sums",
                                           "waiting for experts",
                                           "waiting for copies out",
                                           "waiting for copies in"};
    log_.timed(kinds[static_cast<int>(of->second)], lane, [&] { real_.wait(lane, m); });
  }
  void sync(Mark m) override { real_.sync(m); }
  void copy(Lane lane, const Tensor& from, const Tensor& to) override { real_.copy(lane, from, to); }
  void zero(Lane lane, const Tensor& t) override { real_.zero(lane, t); }
  void begin_transfer(Lane lane) override { real_.begin_transfer(lane); }
  void end_transfer(Lane lane, double seconds) override { real_.end_transfer(lane, seconds); }
  bool repeat(std::int64_t times) override { return real_.repeat(times); }
  std::int64_t repeats() const override { return real_.repeats(); }
  Stamp stamp(Lane lane) override { return real_.stamp(lane); }
  double seconds(Stamp from, Stamp to) override { return real_.seconds(from, to); }
  void forget_stamps() override { real_.forget_stamps(); }

  /// Marks of a step that has passed are not waited for any more.
  void forget_marks() { lanes_.clear(); }

 private:
  Queue& real_;
  Log& log_;
  std::unordered_map<std::uint64_t, Lane> lanes_;
};

class ProfiledBackend::TimedOps final : public Ops {
 public:
  TimedOps(Ops& real, Log& log) : ops_(real), log_(log) {}
  const char* kind() const override { return ops_.kind(); }

  void embed_fwd(Lane l, const EmbedFwd& a) override {
    timed("embedding", l, [&] { ops_.embed_fwd(l, a); });
  }
  void embed_bwd(Lane l, const EmbedBwd& a) override {
    timed("embedding", l, [&] { ops_.embed_bwd(l, a); });
  }
  void rmsnorm_fwd(Lane l, const RmsNormFwd& a) override {
    timed("norm", l, [&] { ops_.rmsnorm_fwd(l, a); });
  }
  void rmsnorm_bwd(Lane l, const RmsNormBwd& a) override {
    timed("norm", l, [&] { ops_.rmsnorm_bwd(l, a); });
  }
  void matmul(Lane l, const Matmul& a) override {
    timed(a.c.dtype == a.a.dtype ? "matmul" : "matmul into f32", l, [&] { ops_.matmul(l, a); });
  }
  void column_sum(Lane l, const ColumnSum& a) override {
    timed("bias", l, [&] { ops_.column_sum(l, a); });
  }
  void qk_rope_fwd(Lane l, const QkRopeFwd& a) override {
    timed("rope", l, [&] { ops_.qk_rope_fwd(l, a); });
  }
  void qk_rope_bwd(Lane l, const QkRopeBwd& a) override {
    timed("rope", l, [&] { ops_.qk_rope_bwd(l, a); });
  }
  void attention_fwd(Lane l, const AttentionFwd& a) override {
    timed("attention forward", l, [&] { ops_.attention_fwd(l, a); });
  }
  void attention_delta(Lane l, const AttentionDelta& a) override {
    timed("attention delta", l, [&] { ops_.attention_delta(l, a); });
  }
  void attention_bwd(Lane l, const AttentionBwd& a) override {
    timed("attention backward", l, [&] { ops_.attention_bwd(l, a); });
  }
  void swiglu_fwd(Lane l, const SwigluFwd& a) override {
    timed("swiglu", l, [&] { ops_.swiglu_fwd(l, a); });
  }
  void swiglu_bwd(Lane l, const SwigluBwd& a) override {
    timed("swiglu", l, [&] { ops_.swiglu_bwd(l, a); });
  }
  void loss_tile(Lane l, const LossTile& a) override {
    timed("loss", l, [&] { ops_.loss_tile(l, a); });
  }
  void sum(Lane l, const Sum& a) override {
    timed("sums", l, [&] { ops_.sum(l, a); });
  }
  void add(Lane l, const Add& a) override {
    timed("gradient sums", l, [&] { ops_.add(l, a); });
  }
  void cast(Lane l, const Cast& a) override {
    timed("casts", l, [&] { ops_.cast(l, a); });
  }
  void adamw(Lane l, const AdamW& a) override {
    timed("optimizer", l, [&] { ops_.adamw(l, a); });
  }
  void route_fwd(Lane l, const RouteFwd& a) override {
    timed("router", l, [&] { ops_.route_fwd(l, a); });
  }
  void route_bwd(Lane l, const RouteBwd& a) override {
    timed("router", l, [&] { ops_.route_bwd(l, a); });
  }
  void route_count(Lane l, const RouteCount& a) override {
    timed("dispatch indices", l, [&] { ops_.route_count(l, a); });
  }
  void dispatch_index(Lane l, const DispatchIndex& a) override {
    timed("dispatch indices", l, [&] { ops_.dispatch_index(l, a); });
  }
  void expert_index(Lane l, const ExpertIndex& a) override {
    timed("dispatch indices", l, [&] { ops_.expert_index(l, a); });
  }
  void gather_rows(Lane l, const GatherRows& a) override {
    timed("gather rows", l, [&] { ops_.gather_rows(l, a); });
  }
  void combine_rows(Lane l, const CombineRows& a) override {
    timed("combine rows", l, [&] { ops_.combine_rows(l, a); });
  }
  void expert_swiglu_bwd(Lane l, const ExpertSwigluBwd& a) override {
    timed("swiglu", l, [&] { ops_.expert_swiglu_bwd(l, a); });
  }
  void grouped_matmul(Lane l, const GroupedMatmul& a) override {
    timed(a.c.dtype == a.a.dtype ? "grouped matmul" : "grouped matmul into f32", l,
          [&] { ops_.grouped_matmul(l, a); });
  }

  std::int64_t attention_fwd_bytes(const AttentionFwd& a) const override {
    return ops_.attention_fwd_bytes(a);
  }
  std::int64_t attention_bwd_bytes(const AttentionBwd& a) const override {
    return ops_.attention_bwd_bytes(a);
  }

 private:
  template <class Work>
  void timed(const char* kind, Lane lane, Work work) {
    log_.timed(kind, lane, work);
  }
  Ops& ops_;
  Log& log_;
};

ProfiledBackend::ProfiledBackend(Backend& real)
    : real_(real),
      log_(std::make_unique<Log>(real.queue())),
      queue_(std::make_unique<TimedQueue>(real.queue(), *log_)),
      ops_(std::make_unique<TimedOps>(real.ops(), *log_)) {}
ProfiledBackend::~ProfiledBackend() = default;

Queue& ProfiledBackend::queue() {
  return *queue_;
}

Ops& ProfiledBackend::ops() {
  return *ops_;
}

std::unique_ptr<Comm> ProfiledBackend::device_comm(std::unique_ptr<Comm> group) {
  return std::make_unique<TimedComm>(real_.device_comm(std::move(group)), *log_);
}

Profile ProfiledBackend::take() {
  queue_->forget_marks();
  return log_->take();
}

}  // namespace annulus
