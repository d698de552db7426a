// The seam between the model and the device: one documented struct an operation, one method each. A backend
// is one class that has them all. Letters: see src/README.md. T is the compute type (f32 or bf16); sums are
// at least f32. Every call is asynchronous on its lane; tensors must stay until the lane has passed it.
// "+=" means that the output holds a value before the call and the result is added to it.
#pragma once
#include <cstdint>
#include <span>
#include "core/queue.h"
#include "core/rng.h"
#include "core/tensor.h"

namespace annulus {

/// y[n,:] = table[ids[n],:]. Ids are checked when data is read, not here.
struct EmbedFwd {
  Tensor ids;    // (N)    in   i32
  Tensor table;  // (V, C) in   T
  Tensor y;      // (N, C) out  T
};

/// dtable[ids[n],:] += dy[n,:], summed in the order of n: deterministic.
struct EmbedBwd {
  Tensor ids;     // (N)    in  i32
  Tensor order;   // (N)    in  i32  0..N-1 sorted by (ids[n], n)
  Tensor dy;      // (N, C) in  T
  Tensor dtable;  // (V, C) +=  f32
};

/// y[n,c] = x[n,c] * rstd[n] * w[c],  rstd[n] = 1 / sqrt(mean_c(x[n,c]^2) + eps). Rounds once.
struct RmsNormFwd {
  Tensor x;     // (N, C) in   T
  Tensor w;     // (C)    in   T
  Tensor y;     // (N, C) out  T; may be x
  Tensor rstd;  // (N)    out  f32; kept for the backward
  double eps = 1e-6;
};

/// dx = dres + d(norm)/dx, dw += sum_n dy[n,:] * x[n,:] * rstd[n]. dw is deterministic.
struct RmsNormBwd {
  Tensor dy;      // (N, C) in   T
  Tensor x;       // (N, C) in   T
  Tensor w;       // (C)    in   T
  Tensor rstd;    // (N)    in   f32
  Tensor dres{};  // (N, C) in   T; optional: gradient that goes round the norm
  Tensor dx;      // (N, C) out  T; may be dy or dres
  Tensor dw{};    // (C)    +=   f32; optional (frozen)
};

/// c = scale * op(a) op(b) + add + bias, products summed in f32, rounded once. op transposes where the flag
/// says so.
struct Matmul {
  Tensor a;       // (M, K), or (K, M) when trans_a   in  T; rows may be strided
  Tensor b;       // (K, N), or (N, K) when trans_b   in  T; rows may be strided
  Tensor c;       // (M, N)  out  T or f32; rows may be strided
  Tensor add{};   // (M, N)  in   c's type; optional; may be c itself
  Tensor bias{};  // (N)     in   T; optional
  bool trans_a = false, trans_b = false;
  double scale = 1.0;
};

/// out[c] += sum_n x[n,c]; deterministic (gradients of biases).
struct ColumnSum {
  Tensor x;    // (N, C) in  T; rows may be strided
  Tensor out;  // (C)    +=  f32
};

/// Per-head RMSNorm of q and k (where weights are given), then rotary embedding of both; v is copied.
/// Heads lie q | k | v in `qkv`. Rotation, half-split: with i < R = inv_freq's size and
/// t = position * inv_freq[i], (x[i], x[i+R]) -> factor * (x[i] cos t - x[i+R] sin t, x[i+R] cos t + x[i] sin
/// t); dimensions from 2R on pass through. Angles are good to 1e-6 rad at position 4,000,000.
struct QkRopeFwd {
  Tensor qkv;           // (N, H + 2G, D)  in   T
  Tensor q_norm{};      // (D)             in   T; optional
  Tensor k_norm{};      // (D)             in   T; optional
  Tensor positions;     // (N)             in   i64  position within the document
  Tensor inv_freq;      // (R)             in   f64
  Tensor q;             // (N, H, D)       out  T
  Tensor kv;            // (2, N, G, D)    out  T
  double factor = 1.0;  // attention_factor
  double eps = 1e-6;
};

/// The gradient of the same. q_norm's rstd is computed again from qkv.
struct QkRopeBwd {
  Tensor dq;         // (N, H, D)       in   f32 or T
  Tensor dkv;        // (2, N, G, D)    in   f32 or T
  Tensor qkv;        // (N, H + 2G, D)  in   T   the forward's input
  Tensor q_norm{};   // (D)             in   T; optional
  Tensor k_norm{};   // (D)             in   T; optional
  Tensor positions;  // (N)             in   i64
  Tensor inv_freq;   // (R)             in   f64
  Tensor dqkv;       // (N, H + 2G, D)  out  T; may be qkv
  Tensor dq_norm{};  // (D)             +=   f32; optional
  Tensor dk_norm{};  // (D)             +=   f32; optional
  double factor = 1.0;
  double eps = 1e-6;
};

/// How much of a (query run, key run) block is visible.
enum class Cover : std::uint8_t {
  full,
  causal,
  partial
};  // causal: square, same positions, nothing else hidden

/// A run of queries against a run of keys. Positions are those in the row; query i of the block is visible to
/// itself over keys first[i] <= position <= its own.
struct AttentionBlock {
  std::int64_t q_at = 0, q_count = 0, q_position = 0;  // rows of q in this call; row position of the first
  std::int64_t k_at = 0, k_count = 0, k_position = 0;
  Cover cover = Cover::partial;
};

/// Folds one visiting set of keys and values into the running softmax of all local queries:
/// for each block in order, (acc, lse) <- merge((acc, lse), softmax part over the block's visible keys).
/// A query that has seen no key has lse = -inf and acc = 0. H is a multiple of G: head h reads h / (H / G).
/// Cost: 4 * H * D flop a visible pair.
struct AttentionFwd {
  Tensor q;      // (Tq, H, D)  in  T; rows may be strided
  Tensor k, v;   // (Tk, G, D)  in  T; rows may be strided
  Tensor first;  // (Tq)        in  i64  first visible row position of each query; non-decreasing in a run
  std::span<const AttentionBlock> blocks;
  Tensor acc{};  // (Tq, H, D)  in/out f32; normalised; contiguous. Null only when begins, ends and one block
  Tensor lse;    // (H, Tq)     in/out f32, natural log
  Tensor o{};    // (Tq, H, D)  out T, written when `ends`; rows may be strided
  bool begins = false;  // acc and lse hold nothing yet: start from no key seen
  bool ends = false;    // after this call o = acc in T
  double scale = 1.0;   // of the scores
  Tensor workspace;     // u8, at least attention_fwd_bytes() of the same call
};

/// delta[h,n] = sum_d o[n,h,d] * d_o[n,h,d].
struct AttentionDelta {
  Tensor o;      // (Tq, H, D) in  T; rows may be strided
  Tensor d_o;    // (Tq, H, D) in  T; rows may be strided
  Tensor delta;  // (H, Tq)    out f32
};

/// Gradients of the blocks, given the final lse and delta of the whole row.
struct AttentionBwd {
  Tensor q;           // (Tq, H, D) in  T; rows may be strided
  Tensor k, v;        // (Tk, G, D) in  T; rows may be strided
  Tensor o, d_o;      // (Tq, H, D) in  T; rows may be strided
  Tensor lse, delta;  // (H, Tq)    in  f32
  Tensor first;       // (Tq)       in  i64
  std::span<const AttentionBlock> blocks;
  Tensor dq;      // (Tq, H, D) +=  f32 (also when T is f32); or bf16: one block of all rows, overwritten
  Tensor dk, dv;  // (Tk, G, D) of dq's type, likewise
  double scale = 1.0;
  Tensor workspace;  // u8, at least attention_bwd_bytes() of the same call
};

/// h = silu(g) * u, gu = (g | u) by columns.
struct SwigluFwd {
  Tensor gu;  // (N, 2F) in  T
  Tensor h;   // (N, F)  out T
};

struct SwigluBwd {
  Tensor gu;   // (N, 2F) in  T
  Tensor dh;   // (N, F)  in  T
  Tensor h{};  // (N, F)  out T; optional: the forward's output again; may be dh
  Tensor dgu;  // (N, 2F) out T; may be gu
};

/// Softmax cross-entropy of a tile of tokens; the gradient replaces the logits.
///   nll[n] = log sum_v exp(z[n,v]) - z[n,target],  z <- scale * (softmax(z) - onehot(target)) in T
/// Rows whose target is negative get zeros everywhere. `scale` is 1 / (targets of the whole step): the one
/// division. scale = 0 leaves gradients zero (evaluation).
struct LossTile {
  Tensor logits;     // (N, V) in/out T
  Tensor targets;    // (N)    in     i32
  Tensor nll;        // (N)    out    f32
  Tensor hit{};      // (N)    out    f32; optional: 1 where the target is the largest logit (first of equals)
  Tensor entropy{};  // (N)    out    f32; optional: -sum p log p
  double scale = 0.0;
};

/// out += sum of x, or of its squares; deterministic, in f64.
struct Sum {
  Tensor x;    // (N) in f32 or T
  Tensor out;  // (1) += f64
  bool squares = false;
};

/// y += x.
struct Add {
  Tensor x;  // (N) in  f32 or bf16
  Tensor y;  // (N) +=  f32 or bf16
};

/// to = from in another type, rounded to nearest even.
struct Cast {
  Tensor from, to;  // (N)
};

/// One AdamW step over a slice of one parameter (Loshchilov & Hutter 2019, alg. 2; epsilon outside the root):
///   g = grad * grad_scale;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
///   w = w - lr * decay * w;  w -= lr * (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps)
/// where w takes m and v as they are before they are rounded.
/// State is f32, or bf16 rounded by narrow_stochastic (core/bf16.h) with draw(seed,
/// Draw::weight/moment1/moment2, (step << 20) + parameter, index in the full shape): an element takes word
/// (index % 4) of draw(index / 4).
struct AdamW {
  Tensor grad;      // (n) in      f32 or bf16
  Tensor master;    // (n) in/out  f32 or bf16
  Tensor m, v;      // (n) in/out  master's type
  Tensor weight{};  // (n) out     T; optional: master rounded to nearest, for the next gather
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0;
  double grad_scale = 1.0;
  std::int64_t step = 1;  // t, from 1
  std::uint64_t seed = 0, parameter = 0;
  std::int64_t from = 0;  // index of the slice's first element in the parameter's full shape
};

/// One method an operation. A new operation: a struct above, a method here, a file in ops/cpu, a line in
/// ops/dry, a kernel in cuda/kernels, and its case table in tests/ops.
class Ops {
 public:
  virtual ~Ops() = default;
  virtual const char* kind() const = 0;  // "cpu", "cuda", "dry"
  virtual void embed_fwd(Lane, const EmbedFwd&) = 0;
  virtual void embed_bwd(Lane, const EmbedBwd&) = 0;
  virtual void rmsnorm_fwd(Lane, const RmsNormFwd&) = 0;
  virtual void rmsnorm_bwd(Lane, const RmsNormBwd&) = 0;
  virtual void matmul(Lane, const Matmul&) = 0;
  virtual void column_sum(Lane, const ColumnSum&) = 0;
  virtual void qk_rope_fwd(Lane, const QkRopeFwd&) = 0;
  virtual void qk_rope_bwd(Lane, const QkRopeBwd&) = 0;
  virtual void attention_fwd(Lane, const AttentionFwd&) = 0;
  virtual void attention_delta(Lane, const AttentionDelta&) = 0;
  virtual void attention_bwd(Lane, const AttentionBwd&) = 0;
  virtual void swiglu_fwd(Lane, const SwigluFwd&) = 0;
  virtual void swiglu_bwd(Lane, const SwigluBwd&) = 0;
  virtual void loss_tile(Lane, const LossTile&) = 0;
  virtual void sum(Lane, const Sum&) = 0;
  virtual void add(Lane, const Add&) = 0;
  virtual void cast(Lane, const Cast&) = 0;
  virtual void adamw(Lane, const AdamW&) = 0;

  /// Scratch bytes of an attention call of this shape, whatever blocks it gets (only q, k, dq and the flags
  /// are read; data pointers may be null).
  virtual std::int64_t attention_fwd_bytes(const AttentionFwd&) const = 0;
  virtual std::int64_t attention_bwd_bytes(const AttentionBwd&) const = 0;
};

}  // namespace annulus
