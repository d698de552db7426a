// Merging one block's attention into the running softmax, by log-sum-exp.
#pragma once
#include <cuda_runtime_api.h>
#include "ops/ops.h"

namespace annulus::cuda {

/// (acc, lse) <- merge((acc, lse), (o_blk, lse_blk)) for n queries, one pass:
///   m = max(lse, lse_blk), a = exp(lse - m), b = exp(lse_blk - m)
///   acc <- (a acc + b o_blk) / (a + b),  lse <- m + log(a + b);  both -inf: acc = 0, lse = -inf
/// Where lse_blk is -inf the row of o_blk is not read (it may hold NaN).
struct LseMerge {
  Tensor o_blk;    // (n, H, D) in  T or f32; rows may be strided. Null: nothing to merge, only begin or end
  Tensor lse_blk;  // (H, n)    in  f32; rows may be strided; null with o_blk
  Tensor acc;      // (n, H, D) in/out f32; rows may be strided. Null only when begins and ends
  Tensor lse;      // (H, n)    in/out f32; rows may be strided (a slice of (H, Tq) has row_stride Tq)
  Tensor o;        // (n, H, D) out T, written when `ends`; rows may be strided; may be o_blk
  bool begins = false;  // acc and lse hold nothing yet
  bool ends = false;    // the result goes to o in T, and not to acc
};

void launch_lse_merge(const LseMerge&, cudaStream_t);

}  // namespace annulus::cuda
