// Merges one block's attention into the running softmax. Memory bound: n*H*D * (sizeof o_blk + 8) bytes,
// less where the merge begins (acc is not read) or ends (o is written instead of acc).
//
//   grid   groups of lanes in a grid-stride loop over (query, head)
//   each   group of 4 to 32 lanes owns one head of one query; a lane merges pieces of W elements
//   needs  offsets are 64-bit; odd D takes one element a lane
//   source Liu et al. 2023 (ring attention), blockwise merge; checked against src/ops/cpu
#include "kernels/common.cuh"
#include "kernels/lse_merge.h"

namespace annulus::cuda {
namespace {

constexpr int kThreads = 256;

struct MergeArgs {
  const void* o_blk;     // (n, H, D) in B; null: no block
  const float* lse_blk;  // (H, n)
  float* acc;            // (n, H, D)
  float* lse;            // (H, n)
  void* o;               // (n, H, D) in T; null: does not end
  std::int64_t n;
  int H, D, lanes;
  std::int64_t o_blk_stride, lse_blk_stride, acc_stride, lse_stride, o_stride;
  bool begins;
};

/// Weights of what was there and of the block, and the new log-sum-exp. Either may be -inf; both: weights 0.
__device__ __forceinline__ float merge(float before, float block, float& keep, float& add) {
  const float top = fmaxf(before, block);
  if (top == -INFINITY) {
    keep = add = 0.f;
    return top;
  }
  keep = expf(before - top), add = expf(block - top);
  const float sum = keep + add;
  keep /= sum, add /= sum;
  return top + logf(sum);
}

template <class B, class T, int W>
__global__ void __launch_bounds__(kThreads) lse_merge_kernel(MergeArgs a) {
  const int groups = kThreads / a.lanes, lane = static_cast<int>(threadIdx.x) % a.lanes;
  const std::int64_t items = a.n * a.H, step = std::int64_t{gridDim.x} * groups;
  for (std::int64_t first = std::int64_t{blockIdx.x} * groups; first < items; first += step) {
    const std::int64_t item = first + static_cast<int>(threadIdx.x) / a.lanes;
    const bool mine = item < items;
    const std::int64_t n = mine ? item / a.H : 0;
    const int h = mine ? static_cast<int>(item - n * a.H) : 0;
    float* lse = a.lse + h * a.lse_stride + n;
    const float before = a.begins || !mine ? -INFINITY : *lse;
    const float block = a.o_blk == nullptr || !mine ? -INFINITY : a.lse_blk[h * a.lse_blk_stride + n];
    float keep, add;
    const float after = merge(before, block, keep, add);
    __syncwarp();  // every lane has read lse before one writes it
    if (!mine) continue;
    if (lane == 0) *lse = after;
    for (int d = lane * W; d < a.D; d += a.lanes * W) {
      const std::int64_t at = std::int64_t{h} * a.D + d;
      float sum[W] = {};
      if (keep != 0.f) {
        load(sum, a.acc + n * a.acc_stride + at);
#pragma unroll
        for (int w = 0; w < W; ++w) sum[w] *= keep;
      }
      if (add != 0.f) {
        float v[W];
        load(v, static_cast<const B*>(a.o_blk) + n * a.o_blk_stride + at);
#pragma unroll
        for (int w = 0; w < W; ++w) sum[w] += add * v[w];
      }
      if (a.o != nullptr)
        store(static_cast<T*>(a.o) + n * a.o_stride + at, sum);
      else
        store(a.acc + n * a.acc_stride + at, sum);
    }
  }
}

template <class B, class T>
void lse_merge(MergeArgs a, bool wide, cudaStream_t stream) {
  const auto kernel = wide ? lse_merge_kernel<B, T, 8> : lse_merge_kernel<B, T, 1>;
  a.lanes = 4;
  while (a.lanes < 32 && a.lanes * (wide ? 8 : 1) < a.D) a.lanes *= 2;
  kernel<<<grid_for(ceil_div(a.n * a.H, kThreads / a.lanes)), kThreads, 0, stream>>>(a);
  launched("lse_merge_kernel");
}

}  // namespace

void launch_lse_merge(const LseMerge& a, cudaStream_t stream) {
  const std::int64_t H = a.lse.shape[0], n = a.lse.shape[1];
  const Tensor& shaped = a.acc ? a.acc : a.o;
  const std::int64_t D = shaped.shape[2];
  shaped.expect({n, H, D});
  if (a.o_blk) a.o_blk.expect({n, H, D}), a.lse_blk.expect({H, n});
  if (a.ends) a.o.expect({n, H, D});
  need(a.acc || (a.begins && a.ends), "lse_merge: no acc");
  if (n * H * D == 0) return;
  const MergeArgs args{.o_blk = a.o_blk.data,
                       .lse_blk = device<float>(a.lse_blk),
                       .acc = device<float>(a.acc),
                       .lse = device<float>(a.lse),
                       .o = a.ends ? a.o.data : nullptr,
                       .n = n,
                       .H = static_cast<int>(H),
                       .D = static_cast<int>(D),
                       .lanes = 0,
                       .o_blk_stride = a.o_blk.stride(),
                       .lse_blk_stride = a.lse_blk.stride(),
                       .acc_stride = a.acc.stride(),
                       .lse_stride = a.lse.stride(),
                       .o_stride = a.o.stride(),
                       .begins = a.begins};
  const bool wide =
      D % 8 == 0 && wide_rows(a.o_blk, 8) && wide_rows(a.acc, 8) && (!a.ends || wide_rows(a.o, 8));
  const bool block_bf16 = a.o_blk && is_bf16(a.o_blk), out_bf16 = a.ends && is_bf16(a.o);
  if (block_bf16) {
    out_bf16 ? lse_merge<nv_bf16, nv_bf16>(args, wide, stream)
             : lse_merge<nv_bf16, float>(args, wide, stream);
  } else {
    out_bf16 ? lse_merge<float, nv_bf16>(args, wide, stream) : lse_merge<float, float>(args, wide, stream);
  }
}

}  // namespace annulus::cuda
