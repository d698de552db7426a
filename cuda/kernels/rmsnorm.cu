// RMSNorm, forward and backward. Memory bound. Forward: 2*N*C*sizeof(T) bytes (a row is read a second time
// from cache). Backward: 3*N*C*sizeof(T), one more N*C*sizeof(T) when a residual gradient is added.
//
//   grid   fwd: a block per row; bwd: at most kPartials blocks, block b walks the rows b, b + blocks, ...
//   each   thread owns pieces of W columns. bwd: a row of dy and x is read once and kept in registers until
//          its sum is known; dw of the thread's columns stays in registers over all rows of the block, is
//          left as one partial row in scratch, and a second kernel adds the partial rows up in order
//   needs  scratch of a few rows of C floats (bwd with dw); rows too wide for the registers are read twice,
//          and their dw accumulates in the block's partial row; offsets are 64-bit
//   source Zhang & Sennrich 2019, eq. 4; checked against src/ops/cpu
#include "kernels/common.cuh"
#include "kernels/partials.h"
#include "kernels/rmsnorm.h"

namespace annulus::cuda {
namespace {

constexpr int kThreads = 256;     // forward, and backward of very wide rows
constexpr int kMaxThreads = 512;  // backward
constexpr std::int64_t kRowsAtLeast = 4;

template <class T, int W>
__global__ void __launch_bounds__(kThreads) rmsnorm_fwd_kernel(const T* x,                    // (N, C)
                                                               const T* __restrict__ weight,  // (C)
                                                               T* y,                      // (N, C), may be x
                                                               float* __restrict__ rstd,  // (N)
                                                               std::int64_t N, std::int64_t C, float eps) {
  __shared__ float part[2][32];
  int turn = 0;
  for (std::int64_t n = blockIdx.x; n < N; n += gridDim.x, turn ^= 1) {
    const T* row = x + n * C;
    float sum = 0.f;
#pragma unroll 4
    for (std::int64_t c = threadIdx.x * W; c < C; c += kThreads * W) {
      float v[W];
      load(v, row + c);
#pragma unroll
      for (int w = 0; w < W; ++w) sum += v[w] * v[w];
    }
    const float r = 1.f / sqrtf(block_sum(sum, part[turn]) / static_cast<float>(C) + eps);
    if (threadIdx.x == 0) rstd[n] = r;
    for (std::int64_t c = threadIdx.x * W; c < C; c += kThreads * W) {
      float v[W], g[W];
      load(v, row + c);
      load(g, weight + c);
#pragma unroll
      for (int w = 0; w < W; ++w) v[w] = v[w] * r * g[w];
      store(y + n * C + c, v);
    }
  }
}

struct BwdArgs {
  const void *dy, *x, *weight;  // (N, C), (N, C), (C) in T
  const float* rstd;            // (N)
  const void* dres;             // (N, C) in T, may be null
  void* dx;                     // (N, C) in T, may be dy or dres
  float* partial;               // (gridDim.x, C), null without dw
  std::int64_t N, C;
};

/// One piece of W columns: dx = dres + r w dy - x r^3 mean, mean = sum_c(dy w x) / C.
template <class T, int W>
__device__ __forceinline__ void write_dx(const BwdArgs& a, std::int64_t at, const float (&dy)[W],
                                         const float (&x)[W], const float (&g)[W], float r, float back) {
  float out[W];
  if (a.dres != nullptr)
    load(out, static_cast<const T*>(a.dres) + at);
  else
#pragma unroll
    for (int w = 0; w < W; ++w) out[w] = 0.f;
#pragma unroll
  for (int w = 0; w < W; ++w) out[w] += r * g[w] * dy[w] - x[w] * back;
  store(static_cast<T*>(a.dx) + at, out);
}

template <class T, int W, int K>  // K pieces of W columns a thread
__global__ void __launch_bounds__(kMaxThreads) rmsnorm_bwd_kernel(BwdArgs a) {
  __shared__ float part[2][32];
  const int C = static_cast<int>(a.C), step = static_cast<int>(blockDim.x) * W;
  const int first = static_cast<int>(threadIdx.x) * W;
  float dw[K][W] = {};
  int turn = 0;
  for (std::int64_t n = blockIdx.x; n < a.N; n += gridDim.x, turn ^= 1) {
    const std::int64_t row = n * a.C;
    float dy[K][W], x[K][W], sum = 0.f;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int c = first + k * step;
      if (c < C) {
        load(dy[k], static_cast<const T*>(a.dy) + row + c);
        load(x[k], static_cast<const T*>(a.x) + row + c);
      }
    }
    const float r = a.rstd[n];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int c = first + k * step;
      if (c < C) {
        float g[W];
        load(g, static_cast<const T*>(a.weight) + c);
#pragma unroll
        for (int w = 0; w < W; ++w) {
          const float t = dy[k][w] * x[k][w];
          sum += t * g[w];
          dw[k][w] += t * r;
        }
      }
    }
    const float back = block_sum(sum, part[turn]) / static_cast<float>(a.C) * r * r * r;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int c = first + k * step;
      if (c < C) {
        float g[W];
        load(g, static_cast<const T*>(a.weight) + c);
        write_dx<T, W>(a, row + c, dy[k], x[k], g, r, back);
      }
    }
  }
  if (a.partial != nullptr) {
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (first + k * step < C) store(a.partial + blockIdx.x * a.C + first + k * step, dw[k]);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) rmsnorm_bwd_long_kernel(BwdArgs a) {
  __shared__ float part[2][32];
  float* dw = a.partial == nullptr ? nullptr : a.partial + blockIdx.x * a.C;
  int turn = 0;
  for (std::int64_t n = blockIdx.x; n < a.N; n += gridDim.x, turn ^= 1) {
    const T* dy = static_cast<const T*>(a.dy) + n * a.C;
    const T* x = static_cast<const T*>(a.x) + n * a.C;
    const T* weight = static_cast<const T*>(a.weight);
    const float r = a.rstd[n];
    float sum = 0.f;
    for (std::int64_t c = threadIdx.x; c < a.C; c += kThreads) {
      const float t = to_float(dy[c]) * to_float(x[c]);
      sum += t * to_float(weight[c]);
      if (dw != nullptr) dw[c] = (n == blockIdx.x ? 0.f : dw[c]) + t * r;
    }
    const float back = block_sum(sum, part[turn]) / static_cast<float>(a.C) * r * r * r;
    for (std::int64_t c = threadIdx.x; c < a.C; c += kThreads) {
      const float d[1] = {to_float(dy[c])}, v[1] = {to_float(x[c])}, g[1] = {to_float(weight[c])};
      write_dx<T, 1>(a, n * a.C + c, d, v, g, r, back);
    }
  }
}

template <class T>
void rmsnorm_fwd(const RmsNormFwd& a, cudaStream_t stream) {
  const std::int64_t N = a.x.shape[0], C = a.x.shape[1];
  const bool wide = wide_rows(a.x, kWide<T>) && wide_rows(a.y, kWide<T>) && wide_vector(a.w, kWide<T>);
  const auto kernel = wide ? rmsnorm_fwd_kernel<T, kWide<T>> : rmsnorm_fwd_kernel<T, 1>;
  kernel<<<grid_for(N), kThreads, 0, stream>>>(device<T>(a.x), device<T>(a.w), device<T>(a.y),
                                               device<float>(a.rstd), N, C, static_cast<float>(a.eps));
  launched("rmsnorm_fwd_kernel");
}

/// The kernel with the fewest registers whose threads hold a row of C columns; null when none does.
template <class T, int W, int K>
auto bwd_kernel(std::int64_t C, int& threads) -> void (*)(BwdArgs) {
  if (C <= std::int64_t{kMaxThreads} * W * K) {
    threads = static_cast<int>(ceil_div(ceil_div(C, W * K), 32) * 32);
    return rmsnorm_bwd_kernel<T, W, K>;
  }
  if constexpr (W * K * 2 <= 32 && K < 8)
    return bwd_kernel<T, W, 2 * K>(C, threads);
  else
    return nullptr;
}

template <class T>
void rmsnorm_bwd(const RmsNormBwd& a, float* partial, std::int64_t blocks, cudaStream_t stream) {
  const BwdArgs args{.dy = device<T>(a.dy),
                     .x = device<T>(a.x),
                     .weight = device<T>(a.w),
                     .rstd = device<float>(a.rstd),
                     .dres = device<T>(a.dres),
                     .dx = device<T>(a.dx),
                     .partial = partial,
                     .N = a.x.shape[0],
                     .C = a.x.shape[1]};
  constexpr int W = kWide<T>;
  const bool wide = wide_rows(a.dy, W) && wide_rows(a.x, W) && wide_vector(a.w, W) && wide_rows(a.dres, W) &&
                    wide_rows(a.dx, W);
  int threads = kThreads;
  auto kernel = wide ? bwd_kernel<T, W, 1>(args.C, threads) : bwd_kernel<T, 1, 8>(args.C, threads);
  if (kernel == nullptr) kernel = rmsnorm_bwd_long_kernel<T>;
  kernel<<<unsigned(blocks), threads, 0, stream>>>(args);
  launched("rmsnorm_bwd_kernel");
}

}  // namespace

void launch_rmsnorm_fwd(const RmsNormFwd& a, cudaStream_t stream) {
  const std::int64_t N = a.x.shape[0], C = a.x.shape[1];
  a.y.expect({N, C}), a.w.expect({C}), a.rstd.expect({N});
  need(a.x.contiguous() && a.y.contiguous(), "rmsnorm_fwd: rows are strided");
  if (N * C == 0) return;
  is_bf16(a.x) ? rmsnorm_fwd<nv_bf16>(a, stream) : rmsnorm_fwd<float>(a, stream);
}

void launch_rmsnorm_bwd(const RmsNormBwd& a, Scratch scratch, cudaStream_t stream) {
  const std::int64_t N = a.x.shape[0], C = a.x.shape[1];
  a.dy.expect({N, C}), a.dx.expect({N, C}), a.w.expect({C}), a.rstd.expect({N});
  need(a.x.contiguous() && a.dy.contiguous() && a.dx.contiguous() && a.dres.contiguous(),
       "rmsnorm_bwd: rows are strided");
  if (N * C == 0) return;
  const std::int64_t blocks = partial_rows(scratch, C, ceil_div(N, kRowsAtLeast));
  float* partial = a.dw ? static_cast<float*>(scratch.data) : nullptr;
  is_bf16(a.x) ? rmsnorm_bwd<nv_bf16>(a, partial, blocks, stream)
               : rmsnorm_bwd<float>(a, partial, blocks, stream);
  if (a.dw) launch_add_partials(partial, blocks, C, C, device<float>(a.dw), stream);
}

}  // namespace annulus::cuda
