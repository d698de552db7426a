// Attention of a whole row over the ring: keys and values travel, queries stay.
#pragma once
#include "core/arena.h"
#include "ops/backend.h"
#include "parallel/row_map.h"

namespace annulus {

struct AttentionShape {
  std::int64_t H = 0, G = 0, D = 0;
  double scale = 1.0;
  std::int64_t groups = 1;  // attention_groups: key/value heads are handled G / groups at a time; divides G
  /// Elements by which a sum of key gradients moves at a time: 64 MB is enough for a link's full rate, and
  /// little beside the sums of long rows.
  std::int64_t passage = std::int64_t{1} << 24;
};

/// Forward: at ring step s a member holds the keys and values of member (index - s); it posts the next shift
/// (send and receive together, Lane::ring) before the attention that it overlaps. A member's keys stop
/// travelling after RowMap::reach. Partial outputs merge by log-sum-exp in f32 (Liu et al. 2023).
/// Backward: dK and dV travel with their keys, in f32, and are sent home from the last member that used them.
/// Every rank makes the same takes from the arena whatever the row looks like.
class RingAttention {
 public:
  /// `ring`: tensor face of the ring group. `T`: compute type.
  RingAttention(Backend&, Arena&, Comm& ring, AttentionShape, DType T);

  ///   q (Tm, H, D), kv (2, Tm, G, D)  in T, Tm = rows of a ring member; first (Tm) i64 for this window
  ///   o (Tm, H, D) out T;  lse (H, Tm) out f32
  void forward(const RowMap&, std::int64_t window, const Tensor& first, const Tensor& q, const Tensor& kv,
               const Tensor& o, const Tensor& lse);
  ///   o, d_o (Tm, H, D) in T; lse (H, Tm) in f32
  ///   dq (Tm, H, D), dkv (2, Tm, G, D) out, of type grad_dtype()
  void backward(const RowMap&, std::int64_t window, const Tensor& first, const Tensor& q, const Tensor& kv,
                const Tensor& o, const Tensor& d_o, const Tensor& lse, const Tensor& dq, const Tensor& dkv);
  /// T when the ring has one member (one block writes its gradient directly), else f32.
  DType grad_dtype() const;

 private:
  Backend& backend_;
  Arena& arena_;
  Comm& ring_;
  AttentionShape shape_;
  DType type_;
};

}  // namespace annulus
