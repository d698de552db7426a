#include "ops/profiled.h"

namespace annulus {

class ProfiledBackend::TimedOps final : public Ops {
 public:
  explicit TimedOps(Backend& real) : queue_(real.queue()), ops_(real.ops()) {}
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
    timed(a.gradient ? "grouped matmul into f32" : "grouped matmul", l, [&] { ops_.grouped_matmul(l, a); });
  }

  std::int64_t attention_fwd_bytes(const AttentionFwd& a) const override {
    return ops_.attention_fwd_bytes(a);
  }
  std::int64_t attention_bwd_bytes(const AttentionBwd& a) const override {
    return ops_.attention_bwd_bytes(a);
  }

  std::map<std::string, OpTime> take() {
    for (int l = 0; l < kLanes; ++l) queue_.sync(queue_.mark(static_cast<Lane>(l)));
    std::map<std::string, OpTime> times;
    for (const Call& c : calls_) {
      OpTime& t = times[c.kind];
      ++t.calls;
      t.seconds += queue_.seconds(c.from, c.to);
    }
    calls_.clear();
    queue_.forget_stamps();
    return times;
  }

 private:
  struct Call {
    const char* kind;
    Stamp from, to;
  };
  template <class Work>
  void timed(const char* kind, Lane lane, Work work) {
    const Stamp from = queue_.stamp(lane);
    work();
    calls_.push_back({kind, from, queue_.stamp(lane)});
  }
  Queue& queue_;
  Ops& ops_;
  std::vector<Call> calls_;
};

ProfiledBackend::ProfiledBackend(Backend& real) : real_(real), ops_(std::make_unique<TimedOps>(real)) {}
ProfiledBackend::~ProfiledBackend() = default;

Ops& ProfiledBackend::ops() {
  return *ops_;
}

std::map<std::string, OpTime> ProfiledBackend::take() {
  return ops_->take();
}

}  // namespace annulus
