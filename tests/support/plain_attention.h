// Attention as its definition says, one query and one key at a time, in double: what the tests hold backends
// to.
#pragma once
#include <span>
#include "ops/ops.h"
#include "support/judge.h"

namespace annulus::test {

/// Queries and keys of one call, as (Tq, H, D) and (Tk, G, D) vectors, and which of them meet.
struct AttentionInputs {
  std::int64_t Tq = 0, Tk = 0, H = 0, G = 0, D = 0;
  double scale = 1.0;
  Doubles q, k, v;
  std::vector<std::int64_t> first;  // (Tq)
  std::vector<AttentionBlock> blocks;
  bool round_weights =
      false;  // probabilities (and their gradients) pass through bf16, as in low-precision kernels
};

struct AttentionOutputs {
  Doubles o;    // (Tq, H, D)
  Doubles lse;  // (H, Tq)
  Doubles
      magnitude;  // (H, Tq): largest sum of |q_d k_d| scale over visible keys: what score rounding goes by
};
AttentionOutputs plain_attention(const AttentionInputs&);

struct AttentionGradients {
  Doubles dq, dk, dv;
  Doubles dq_terms, dk_terms, dv_terms;  // sums of the absolute values of what was added up
};
/// `lse` and `delta` (H, Tq) are taken as given.
AttentionGradients plain_attention_bwd(const AttentionInputs&, const Doubles& d_o, const Doubles& lse,
                                       const Doubles& delta);

/// delta (H, Tq) of o and d_o (Tq, H, D).
Doubles plain_delta(const AttentionInputs&, const Doubles& o, const Doubles& d_o);

}  // namespace annulus::test
