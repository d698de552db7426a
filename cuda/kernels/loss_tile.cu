// Softmax cross-entropy of a tile of tokens, in place. Memory bound: 2*N*V*sizeof(T) bytes (logits in,
// gradient out); the part of a row that does not fit in shared memory is read a second time, mostly from
// L2.
//
//   grid   one block per row
//   each   thread walks the row in pieces of W logits and keeps a running maximum and sum; partial results
//          meet in a fixed order; a second pass writes scale * (softmax - onehot). The first logits of a row
//          stay in shared memory between the passes, as many as fit
//   needs  dynamic shared memory up to the device's limit; offsets are 64-bit; odd V takes one element a
//          thread
//   source Milakov & Gimelshein 2018, alg. 3; checked against src/ops/cpu
#include <cmath>
#include "kernels/common.cuh"
#include "kernels/loss_tile.h"

namespace annulus::cuda {
namespace {

constexpr int kMaxThreads = 1024;

/// Of the logits seen so far: the largest, sum of e^(z - top), sum of (z - top) e^(z - top).
struct Running {
  float top, sum, weighted;
};

template <bool Entropy>
__device__ __forceinline__ void raise(Running& r, float top) {
  if (!(top > r.top)) return;
  if (r.top == -INFINITY) {
    r.sum = r.weighted = 0.f;
  } else {
    const float down = r.top - top, shrink = expf(down);
    if (Entropy) r.weighted = shrink > 0.f ? shrink * (r.weighted + down * r.sum) : 0.f;
    r.sum *= shrink;
  }
  r.top = top;
}

template <bool Entropy>
__device__ __forceinline__ void join(Running& a, Running b) {
  const float top = fmaxf(a.top, b.top);
  raise<Entropy>(a, top);
  raise<Entropy>(b, top);
  a.sum += b.sum;
  a.weighted += b.weighted;
}

/// Over the block; every thread gets the same bits, since each joins the same values in the same order.
template <bool Entropy>
__device__ Running block_join(Running r, Running* part) {
  for (int o = 16; o > 0; o /= 2) {
    Running other;
    other.top = __shfl_down_sync(0xffffffffu, r.top, o);
    other.sum = __shfl_down_sync(0xffffffffu, r.sum, o);
    other.weighted = __shfl_down_sync(0xffffffffu, r.weighted, o);
    join<Entropy>(r, other);
  }
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = r;
  __syncthreads();
  r = part[0];
  for (unsigned i = 1; i < blockDim.x / 32; ++i) join<Entropy>(r, part[i]);
  return r;
}

template <class T, int W, bool Entropy>
__global__ void __launch_bounds__(kMaxThreads)
    loss_tile_kernel(T* logits,                                 // (N, V)
                     const std::int32_t* __restrict__ targets,  // (N)
                     float* __restrict__ nll,                   // (N)
                     float* __restrict__ hit,                   // (N), may be null
                     float* __restrict__ entropy,               // (N), null without Entropy
                     std::int64_t V, std::int64_t kept,         // logits kept in shared memory, W divides it
                     float scale) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ Running part[32];
  T* keep = reinterpret_cast<T*>(shared);
  const std::int64_t n = blockIdx.x, first = threadIdx.x * W, step = std::int64_t{blockDim.x} * W;
  T* row = logits + n * V;
  const std::int64_t target = targets[n];
  const float zero[W] = {};
  if (target < 0) {
    for (std::int64_t v = first; v < V; v += step) store(row + v, zero);
    if (threadIdx.x == 0) {
      nll[n] = 0.f;
      if (hit != nullptr) hit[n] = 0.f;
      if (Entropy) entropy[n] = 0.f;
    }
    return;
  }
  const float at_target = to_float(row[target]);
  Running r{-INFINITY, 0.f, 0.f};
  bool beaten = false;
#pragma unroll 4
  for (std::int64_t v = first; v < V; v += step) {
    float z[W];
    load(z, row + v);
    if (v < kept) store(keep + v, z);  // exact: T to float and back
    float top = z[0];
#pragma unroll
    for (int w = 1; w < W; ++w) top = fmaxf(top, z[w]);
    raise<Entropy>(r, top);
    if (top >= at_target) {
#pragma unroll
      for (int w = 0; w < W; ++w) beaten |= z[w] > at_target || (z[w] == at_target && v + w < target);
    }
#pragma unroll
    for (int w = 0; w < W; ++w) {
      const float below = z[w] - r.top, e = r.top == -INFINITY ? 0.f : expf(below);
      r.sum += e;
      if (Entropy && e > 0.f) r.weighted += below * e;
    }
  }
  beaten = __syncthreads_or(beaten);  // also: `kept` is written, and nobody still reads the target's logit
  r = block_join<Entropy>(r, part);
  if (threadIdx.x == 0) {
    nll[n] = logf(r.sum) + (r.top - at_target);
    if (hit != nullptr) hit[n] = beaten ? 0.f : 1.f;
    if (Entropy) entropy[n] = logf(r.sum) - r.weighted / r.sum;
  }
  if (scale == 0.f) {
    for (std::int64_t v = first; v < V; v += step) store(row + v, zero);
    return;
  }
  const float factor = scale / r.sum;
#pragma unroll 2
  for (std::int64_t v = first; v < V; v += step) {
    float z[W];
    load(z, v < kept ? keep + v : row + v);
#pragma unroll
    for (int w = 0; w < W; ++w) {
      const float e = expf(z[w] - r.top);
      z[w] = factor * (v + w == target ? e - r.sum : e);
    }
    store(row + v, z);
  }
}

template <class T, int W>
void loss_tile(const LossTile& a, cudaStream_t stream) {
  const std::int64_t N = a.logits.shape[0], V = a.logits.shape[1];
  int gpu = 0, limit = 0;
  cu(cudaGetDevice(&gpu), "cudaGetDevice");
  cu(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu), "cudaDeviceGetAttribute");
  const std::int64_t room = (limit - 1024) / static_cast<int>(sizeof(T)) / W * W;  // `part` is static
  const std::int64_t kept = std::min(V, room);
  const auto kernel = a.entropy ? loss_tile_kernel<T, W, true> : loss_tile_kernel<T, W, false>;
  const auto bytes = static_cast<int>(kept * std::int64_t{sizeof(T)});
  cu(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
     "cudaFuncSetAttribute");
  const int threads =
      bytes > limit / 2
          ? kMaxThreads
          : static_cast<int>(std::clamp<std::int64_t>(ceil_div(V, 32 * W) * 32, 32, kMaxThreads / 2));
  kernel<<<unsigned(N), threads, static_cast<unsigned>(bytes), stream>>>(
      device<T>(a.logits), device<std::int32_t>(a.targets), device<float>(a.nll), device<float>(a.hit),
      device<float>(a.entropy), V, kept, static_cast<float>(a.scale));
  launched("loss_tile_kernel");
}

template <class T>
void loss_tile(const LossTile& a, cudaStream_t stream) {
  wide_rows(a.logits, kWide<T>) ? loss_tile<T, kWide<T>>(a, stream) : loss_tile<T, 1>(a, stream);
}

}  // namespace

void launch_loss_tile(const LossTile& a, cudaStream_t stream) {
  const std::int64_t N = a.logits.shape[0], V = a.logits.shape[1];
  a.targets.expect({N}), a.nll.expect({N});
  need(a.logits.contiguous() && N <= 0x7fffffff, "loss_tile: layout");
  if (N * V == 0) return;
  is_bf16(a.logits) ? loss_tile<nv_bf16>(a, stream) : loss_tile<float>(a, stream);
}

}  // namespace annulus::cuda
