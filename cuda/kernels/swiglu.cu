// SwiGLU, forward and backward. Memory bound: forward 3*N*F*sizeof(T) bytes, backward 5*N*F*sizeof(T), one
// more N*F*sizeof(T) when h is wanted again.
//
//   grid   (slices of columns, rows)
//   each   thread owns W columns of g and of u, and walks rows in steps of gridDim.y
//   needs  offsets are 64-bit; odd F takes one element a thread
//   source Shazeer 2020, eq. 6; checked against src/ops/cpu
#include "kernels/common.cuh"
#include "kernels/sigmoid.cuh"
#include "kernels/swiglu.h"

namespace annulus::cuda {
namespace {

constexpr int kThreads = 256;

template <class T, int W>
__global__ void __launch_bounds__(kThreads) swiglu_fwd_kernel(const T* __restrict__ gu,  // (N, 2F)
                                                              T* __restrict__ h,         // (N, F)
                                                              std::int64_t N, std::int64_t F) {
  for (std::int64_t n = blockIdx.y; n < N; n += gridDim.y) {
    for (std::int64_t f = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * W; f < F;
         f += std::int64_t{gridDim.x} * kThreads * W) {
      float g[W], u[W];
      load(g, gu + n * 2 * F + f);
      load(u, gu + n * 2 * F + F + f);
#pragma unroll
      for (int w = 0; w < W; ++w) g[w] = g[w] * sigmoid(g[w]) * u[w];
      store(h + n * F + f, g);
    }
  }
}

template <class T, int W>
__global__ void __launch_bounds__(kThreads) swiglu_bwd_kernel(const T* gu,  // (N, 2F)
                                                              const T* dh,  // (N, F)
                                                              T* h,         // (N, F), may be null, may be dh
                                                              T* dgu,       // (N, 2F), may be gu
                                                              std::int64_t N, std::int64_t F) {
  for (std::int64_t n = blockIdx.y; n < N; n += gridDim.y) {
    for (std::int64_t f = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * W; f < F;
         f += std::int64_t{gridDim.x} * kThreads * W) {
      float g[W], u[W], d[W], again[W];
      load(g, gu + n * 2 * F + f);
      load(u, gu + n * 2 * F + F + f);
      load(d, dh + n * F + f);
#pragma unroll
      for (int w = 0; w < W; ++w) {
        const float s = sigmoid(g[w]), silu = g[w] * s;
        again[w] = silu * u[w];
        const float dg = d[w] * u[w] * s * (1.f + g[w] * (1.f - s));
        u[w] = d[w] * silu;
        g[w] = dg;
      }
      if (h != nullptr) store(h + n * F + f, again);
      store(dgu + n * 2 * F + f, g);
      store(dgu + n * 2 * F + F + f, u);
    }
  }
}

dim3 grid_of(std::int64_t N, std::int64_t F, int W) {
  return dim3(grid_for(ceil_div(F, std::int64_t{kThreads} * W)), grid_for(N, 65535));
}

/// Both halves of a row of gu start on a wide boundary when F does.
template <class T>
bool wide_halves(const Tensor& gu, std::int64_t F) {
  return wide_rows(gu, kWide<T>) && F % kWide<T> == 0;
}

template <class T>
void swiglu_fwd(const SwigluFwd& a, cudaStream_t stream) {
  const std::int64_t N = a.h.shape[0], F = a.h.shape[1];
  const bool wide = wide_halves<T>(a.gu, F) && wide_rows(a.h, kWide<T>);
  const auto kernel = wide ? swiglu_fwd_kernel<T, kWide<T>> : swiglu_fwd_kernel<T, 1>;
  kernel<<<grid_of(N, F, wide ? kWide<T> : 1), kThreads, 0, stream>>>(device<T>(a.gu), device<T>(a.h), N, F);
  launched("swiglu_fwd_kernel");
}

template <class T>
void swiglu_bwd(const SwigluBwd& a, cudaStream_t stream) {
  const std::int64_t N = a.dh.shape[0], F = a.dh.shape[1];
  const bool wide = wide_halves<T>(a.gu, F) && wide_halves<T>(a.dgu, F) && wide_rows(a.dh, kWide<T>) &&
                    wide_rows(a.h, kWide<T>);
  const auto kernel = wide ? swiglu_bwd_kernel<T, kWide<T>> : swiglu_bwd_kernel<T, 1>;
  kernel<<<grid_of(N, F, wide ? kWide<T> : 1), kThreads, 0, stream>>>(device<T>(a.gu), device<T>(a.dh),
                                                                      device<T>(a.h), device<T>(a.dgu), N, F);
  launched("swiglu_bwd_kernel");
}

}  // namespace

void launch_swiglu_fwd(const SwigluFwd& a, cudaStream_t stream) {
  const std::int64_t N = a.h.shape[0], F = a.h.shape[1];
  a.gu.expect({N, 2 * F});
  need(a.gu.contiguous() && a.h.contiguous(), "swiglu_fwd: rows are strided");
  if (N * F == 0) return;
  is_bf16(a.h) ? swiglu_fwd<nv_bf16>(a, stream) : swiglu_fwd<float>(a, stream);
}

void launch_swiglu_bwd(const SwigluBwd& a, cudaStream_t stream) {
  const std::int64_t N = a.dh.shape[0], F = a.dh.shape[1];
  a.gu.expect({N, 2 * F}), a.dgu.expect({N, 2 * F});
  need(a.gu.contiguous() && a.dh.contiguous() && a.h.contiguous() && a.dgu.contiguous(),
       "swiglu_bwd: rows are strided");
  if (N * F == 0) return;
  is_bf16(a.dh) ? swiglu_bwd<nv_bf16>(a, stream) : swiglu_bwd<float>(a, stream);
}

}  // namespace annulus::cuda
