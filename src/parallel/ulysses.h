// Attention of a whole row over all ranks that share it: heads are cut over the `ulysses` ranks of a ring
// place, the row over the ring's members.
#pragma once
#include <functional>
#include <span>
#include <vector>
#include "core/arena.h"
#include "ops/backend.h"
#include "parallel/ring_attention.h"

namespace annulus {

/// What one of `ulysses` ranks attends with. Key/value heads are repeated until every rank gets as many, and
/// only those that its query heads read.
struct HeadShare {
  std::int64_t H = 0, G = 0;  // of a rank
  std::int64_t repeats = 1;   // copies of each key/value head, over all ranks
};
/// `ulysses` divides H.
HeadShare share_heads(std::int64_t H, std::int64_t G, int ulysses);

/// Two all-to-alls round the ring turn token shards into head shards and back (Jacobs et al. 2023): a rank
/// has all heads of its Tl tokens outside, and inside its own heads of the Tm = ulysses * Tl tokens of its
/// ring place. With one rank a place both are the same, and nothing moves.
class ContextAttention {
 public:
  /// `shape`: H and G of the whole model; `groups` divides a rank's key/value heads.
  ContextAttention(Backend&, Arena&, Comm& ring, Comm& ulysses, AttentionShape shape, DType T);

  /// Works on head shards: H and G of a HeadShare, Tm tokens.
  RingAttention& ring() { return ring_; }
  const HeadShare& share() const { return share_; }

  /// Token shard to head shard; both stay, and the result is a temporary of its own, unless the two are the
  /// same tensor.
  ///   x (Tl, H, D) -> (Tm, share H, D)
  Tensor to_heads(const Tensor& x);
  ///   kv (2, Tl, G, D) -> (2, Tm, share G, D)
  Tensor pair_to_heads(const Tensor& kv);
  /// The way back. Takes over the head shard.
  Tensor to_tokens(Tensor x, Region = Region::workspace);
  /// Gradients: copies of one head are summed in f32, in the order of the ranks.
  Tensor pair_to_tokens(Tensor dkv);

 private:
  bool whole() const { return ulysses_.size() == 1; }
  /// Rank `u`'s place in a buffer for all ranks but this one.
  std::int64_t slot(int u) const { return (u - ulysses_.rank() - 1 + ulysses_.size()) % ulysses_.size(); }
  void exchange(std::span<const Send>, std::span<const Receive>);
  void copy(const Tensor& from, const Tensor& to) { backend_.queue().copy(Lane::compute, from, to); }
  /// d (Tl, G, D): each head the sum of its copies; `part`: a copy (Tl, 1, D), by its number over all ranks.
  void sum_copies(const std::function<Tensor(std::int64_t)>& part, const Tensor& d);

  Backend& backend_;
  Arena& arena_;
  Comm& ulysses_;
  AttentionShape shape_;
  HeadShare share_;
  RingAttention ring_;
};

}  // namespace annulus
