// The instructions of the tensor-core kernels (compute capability 8.0 and later): asynchronous copies into
// shared memory, matrix loads, and the bf16 product with f32 sums. Included by .cu files only.
#pragma once
#include <cuda_bf16.h>
#include <cstdint>

namespace annulus::cuda {

/// Address of shared memory as the instructions below take it.
__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

/// Copies B bytes (4, 8 or 16, aligned) to shared memory; zeros instead when not `valid`.
template <int B>
__device__ __forceinline__ void copy_async(std::uint32_t to, const void* from, bool valid) {
  const int bytes = valid ? B : 0;
  if constexpr (B == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to), "l"(from), "r"(bytes), "n"(B)
                 : "memory");
}

/// Waits for all asynchronous copies of this thread.
__device__ __forceinline__ void copies_arrived() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/// Four 8 x 8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void load_matrices(std::uint32_t (&m)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}

/// The same, each matrix transposed.
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&m)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}

/// c (16, 8) f32 += a (16, 16) bf16 * b (16, 8) bf16. Lane l holds of c: rows l/4 (c[0], c[1]) and l/4 + 8
/// (c[2], c[3]), columns 2 (l % 4) and the next.
__device__ __forceinline__ void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                             std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// 2^x, to about 2^-22 relative; 2^-inf = 0.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace annulus::cuda
