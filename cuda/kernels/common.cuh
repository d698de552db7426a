// What the kernels share: typed pointers, wide loads and stores that widen to float, sums over lanes and
// blocks, grid sizes. Included by .cu files only.
#pragma once
#include <cuda_bf16.h>
#include <algorithm>
#include <cstdint>
#include <type_traits>
#include "core/check.cuh"
#include "core/tensor.h"

namespace annulus::cuda {

using nv_bf16 = __nv_bfloat16;

/// The tensor's memory as the type that device code computes with; null for an absent optional tensor.
template <class T>
T* device(const Tensor& t, std::source_location at = std::source_location::current()) {
  if (!t) return nullptr;
  if constexpr (std::is_same_v<T, nv_bf16>)
    return reinterpret_cast<nv_bf16*>(t.as<bf16>(at));
  else
    return t.as<T>(at);
}

/// Whether `t` is bf16 (true) or f32 (false); anything else is a bug of the caller.
inline bool is_bf16(const Tensor& t, std::source_location at = std::source_location::current()) {
  need(t.dtype == DType::bf16 || t.dtype == DType::f32, std::string(t.name) + ": neither f32 nor bf16", at);
  return t.dtype == DType::bf16;
}

/// Elements of T in a 16-byte access.
template <class T>
inline constexpr int kWide = 16 / static_cast<int>(sizeof(T));

/// Whether every row of `t` can be read `width` elements at a time, at most 16 bytes an access. An absent
/// tensor can.
inline bool wide_rows(const Tensor& t, std::int64_t width) {
  if (!t) return true;
  const std::int64_t step = std::min<std::int64_t>(16, width * bytes_of(t.dtype));
  return reinterpret_cast<std::uintptr_t>(t.data) % static_cast<std::uintptr_t>(step) == 0 &&
         t.row_size() % width == 0 && (t.shape[0] <= 1 || t.stride() % width == 0);
}

/// Same for a vector, whose tail is handled apart.
inline bool wide_vector(const Tensor& t, std::int64_t width) {
  const std::int64_t step = std::min<std::int64_t>(16, width * bytes_of(t.dtype));
  return !t || reinterpret_cast<std::uintptr_t>(t.data) % static_cast<std::uintptr_t>(step) == 0;
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Blocks for `items` pieces of work in a grid-stride loop.
inline unsigned grid_for(std::int64_t items, std::int64_t limit = 0x7fffffff) {
  return static_cast<unsigned>(std::clamp<std::int64_t>(items, 1, limit));
}

__device__ __forceinline__ float to_float(float v) {
  return v;
}
__device__ __forceinline__ float to_float(nv_bf16 v) {
  return __bfloat162float(v);
}

template <class T>
__device__ __forceinline__ T from_float(float v) {
  if constexpr (std::is_same_v<T, nv_bf16>)
    return __float2bfloat16_rn(v);
  else
    return v;
}

/// W elements from p, widened. W > 1 needs p aligned to min(16, W * sizeof(T)) bytes.
template <int W, class T>
__device__ __forceinline__ void load(float (&v)[W], const T* p) {
  if constexpr (W == 1) {
    v[0] = to_float(p[0]);
  } else if constexpr (std::is_same_v<T, float>) {
    static_assert(W % 4 == 0);
#pragma unroll
    for (int i = 0; i < W; i += 4) {
      const float4 f = *reinterpret_cast<const float4*>(p + i);
      v[i] = f.x, v[i + 1] = f.y, v[i + 2] = f.z, v[i + 3] = f.w;
    }
  } else {
    static_assert(W == 4 || W % 8 == 0);
    std::uint32_t u[W / 2];
    if constexpr (W == 4) {
      const uint2 t = *reinterpret_cast<const uint2*>(p);
      u[0] = t.x, u[1] = t.y;
    } else {
#pragma unroll
      for (int i = 0; i < W / 8; ++i) {
        const uint4 t = reinterpret_cast<const uint4*>(p)[i];
        u[4 * i] = t.x, u[4 * i + 1] = t.y, u[4 * i + 2] = t.z, u[4 * i + 3] = t.w;
      }
    }
#pragma unroll
    for (int i = 0; i < W / 2; ++i) {
      v[2 * i] = __uint_as_float(u[i] << 16);
      v[2 * i + 1] = __uint_as_float(u[i] & 0xffff0000u);
    }
  }
}

__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 t = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&t);
}

/// W elements to p, rounded to nearest even. Alignment as for load.
template <int W, class T>
__device__ __forceinline__ void store(T* p, const float (&v)[W]) {
  if constexpr (W == 1) {
    p[0] = from_float<T>(v[0]);
  } else if constexpr (std::is_same_v<T, float>) {
#pragma unroll
    for (int i = 0; i < W; i += 4)
      *reinterpret_cast<float4*>(p + i) = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
  } else if constexpr (W == 4) {
    *reinterpret_cast<uint2*>(p) = make_uint2(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]));
  } else {
#pragma unroll
    for (int i = 0; i < W; i += 8)
      *reinterpret_cast<uint4*>(p + i) =
          make_uint4(pack_bf16(v[i], v[i + 1]), pack_bf16(v[i + 2], v[i + 3]), pack_bf16(v[i + 4], v[i + 5]),
                     pack_bf16(v[i + 6], v[i + 7]));
  }
}

/// Sum over the `lanes` (a power of two) neighbouring lanes of a warp; every lane gets the same bits.
template <class F>
__device__ __forceinline__ F lane_sum(F v, int lanes = 32) {
  for (int o = lanes / 2; o > 0; o /= 2) v += __shfl_xor_sync(0xffffffffu, v, o);
  return v;
}

/// Sum over a block of full warps, at most 1024 threads; every thread gets the same bits. `part` is shared
/// memory of 32 elements; a caller that sums twice in a row alternates two of them, or synchronises between.
template <class F>
__device__ __forceinline__ F block_sum(F v, F* part) {
  v = lane_sum(v);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  return lane_sum(lane < warps ? part[lane] : F(0));
}

}  // namespace annulus::cuda
