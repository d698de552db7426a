// Operations of the mixture-of-experts layers; part of ops.h. Letters: N tokens, E experts of the model, K
// experts a token, R ranks of the expert group; of one rank: X = E / R experts, M received rows, P expanded
// rows (one for each pair of a received row and an expert of its own).
#pragma once
#include <cstdint>
#include <span>
#include "core/tensor.h"

namespace annulus {

/// A token's experts are its K largest logits in descending order, the first of equals first (a NaN counts as
/// -inf); its weights are their p, the softmax over all its logits, divided by their sum when `normalize`.
/// With `reuse`, ids are read instead (a recompute, where rounding must not choose anew). A token whose
/// `valid` is 0 (padding) gets ids -1 and weights 0 and counts nowhere.
struct RouteFwd {
  Tensor logits;         // (N, E)  in      f32
  Tensor valid;          // (N)     in      i32
  Tensor ids;            // (N, K)  out     i32; in with `reuse`
  Tensor weights;        // (N, K)  out     f32
  Tensor picked{};       // (E)     +=      f64; optional: valid tokens that chose it
  Tensor probability{};  // (E)     +=      f64; optional: sum of p over valid tokens; deterministic
  bool normalize = false, reuse = false;
};

/// Gradient of the weights, and of the auxiliary loss through p: dL/dp[n,e] = aux[e] for each valid token,
/// whose ids are not -1.
struct RouteBwd {
  Tensor logits;    // (N, E)  in   f32
  Tensor ids;       // (N, K)  in   i32
  Tensor dweights;  // (N, K)  in   f32
  Tensor aux{};     // (E)     in   f64; optional
  Tensor dlogits;   // (N, E)  out  T; zero for padding
  bool normalize = false;
};

/// What each sub-range of tokens sends: for tokens [s * range, (s + 1) * range) of N, experts[s, e] = pairs
/// that chose e, and rows[s, r] = tokens with at least one expert on rank r (experts r * X ... belong to it).
struct RouteCount {
  Tensor ids;      // (N, K)            in   i32
  Tensor experts;  // (ceil(N/range), E)  out  i64
  Tensor rows;     // (ceil(N/range), R)  out  i64
  std::int64_t range = 0;
};

/// Lays out what a tile of tokens sends, by rank, then by token: a row goes once to each rank that has an
/// expert of its own. S rows in all, as RouteCount said.
struct DispatchIndex {
  Tensor ids;      // (N, K)  in   i32  of the tile
  Tensor weights;  // (N, K)  in   f32
  Tensor token;    // (S)     out  i32  the token of each sent row, counted in the tile
  Tensor slots;    // (S, K)  out  i32  number of the expert on its rank (0 .. X-1), -1 where it is another's
  Tensor shares;   // (S, K)  out  f32  its weight, 0 where slots is -1
  Tensor place;    // (N, R)  out  i32  the sent row of each token and rank; -1: none
  std::int64_t experts = 0;  // X
};

/// Sorts the pairs of M received rows by expert, within one by (row, slot): a stable counting sort. P is the
/// number of slots that are not -1.
struct ExpertIndex {
  Tensor slots;              // (M, K)  in   i32  -1: none
  Tensor shares;             // (M, K)  in   f32
  Tensor row;                // (P)     out  i32  the received row of each expanded one
  Tensor share;              // (P)     out  f32  its weight
  Tensor place;              // (M, K)  out  i32  the expanded row of each pair; -1: none
  std::int64_t experts = 0;  // X
};

/// y[i,:] = x[index[i],:]; zeros where the index is -1.
struct GatherRows {
  Tensor x;      // (N, C)  in   T, f32 or i32
  Tensor index;  // (I)     in   i32
  Tensor y;      // (I, C)  out  x's type
};

/// y[n,:] = add[n,:] + sum over j of w[n,j] * x[index[n,j],:], in f32, in the order of j, rounded once.
struct CombineRows {
  Tensor x;          // (I, C)  in   T or f32
  Tensor index;      // (N, J)  in   i32; -1: nothing
  Tensor weights{};  // (N, J)  in   f32; optional: ones
  Tensor add{};      // (N, C)  in   y's type; optional; may be y
  Tensor y;          // (N, C)  out  x's type
};

/// The gradient of share * silu(g) * u, where dh is that of the unweighted product's use:
///   h <- share * silu(g) u,  dshare = sum over columns of dh * silu(g) u,  dgu = swiglu'(gu) * share * dh.
/// dshare is deterministic.
struct ExpertSwigluBwd {
  Tensor gu;      // (P, 2F)  in   T
  Tensor dh;      // (P, F)   in   T
  Tensor share;   // (P)      in   f32
  Tensor h{};     // (P, F)   out  T; optional (frozen experts); may be dh
  Tensor dshare;  // (P)      out  f32
  Tensor dgu;     // (P, 2F)  out  T; may be gu
};

/// One product an expert: rows [offsets[e], offsets[e+1]) belong to expert e. Products summed in f32. An
/// expert without rows costs nothing (and adds nothing); rows before the first offset and from the last on
/// are nobody's and stay as they are.
///   rows x matrix:   c[rows of e] = scale * a[rows of e] op(b[e])          b (X, K, N), or (X, N, K) trans_b
///                    or, with `add`, what c holds is added                 rounded once
///   rows x rows:     c[e] += scale * a[rows of e]^T b[rows of e]           c (X, M, N) f32
struct GroupedMatmul {
  Tensor a;                               // (P, K) in T; rows x rows: (P, M)
  Tensor b;                               // see above   in T; rows x rows: (P, N)
  Tensor c;                               // (P, N) out T, or += with `add`; rows x rows: (X, M, N) += f32
  std::span<const std::int64_t> offsets;  // X + 1, on the host, read before the call returns
  bool trans_b = false;
  bool gradient = false;  // rows x rows
  bool add = false;       // rows x matrix: to what c holds
  double scale = 1.0;
};

}  // namespace annulus
