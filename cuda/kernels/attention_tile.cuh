// Tiles of the tensor-core attention kernels: rows of one head in shared memory, products of tiles, and the
// walk over the keys that a tile of queries sees. Included by .cu files only.
//
// A tile lies row after row, D bf16 a row, in pieces of 16 bytes; piece c of row r is at place c ^ (r % 8),
// so that eight rows of one column of pieces lie in different banks.
#pragma once
#include "kernels/attention_args.h"
#include "kernels/common.cuh"
#include "kernels/mma.cuh"

namespace annulus::cuda {

inline constexpr int kTileThreads = 128;  // 4 warps, in all kernels
inline constexpr int kTileKeys = 64;
inline constexpr float kLog2e = 1.4426950408889634f;

/// Starts the copy of rows [0, valid) of a head, `stride` elements apart, to a tile of `Rows` rows; zeros
/// follow.
template <int D, int Rows>
__device__ __forceinline__ void load_tile(std::uint32_t tile, const nv_bf16* from, std::int64_t stride,
                                          int valid) {
  constexpr int kPieces = D / 8, kStep = kTileThreads / kPieces;
  const int row0 = static_cast<int>(threadIdx.x) / kPieces, piece = static_cast<int>(threadIdx.x) % kPieces;
  static_assert(kStep % 8 == 0, "the swizzle of a thread's rows is one constant");
  const std::uint32_t to = tile + row0 * D * 2 + ((piece ^ (row0 % 8)) * 16);
  const nv_bf16* p = from + row0 * stride + piece * 8;
#pragma unroll
  for (int i = 0; i < Rows / kStep; ++i) {
    const bool there = row0 + i * kStep < valid;
    copy_async<16>(to + i * kStep * D * 2, there ? p + i * kStep * stride : from, there);
  }
}

/// The lane's address in a tile for load_matrices of 16 rows from `row` (a multiple of 8), two columns of
/// pieces. As left operand: matrices are (rows 0-7, 8-15) x piece, then the same x next piece. Transposed,
/// the same order is the right operand's when rows are the summed dimension.
template <int D>
__device__ __forceinline__ std::uint32_t row_address(std::uint32_t tile, int row, int lane) {
  return tile + (row + lane % 16) * D * 2 + (((lane / 16) ^ (lane % 8)) * 16);
}

/// As right operand when pieces are the summed dimension: matrices are rows 0-7 x (piece, next piece), then
/// rows 8-15 x the same.
template <int D>
__device__ __forceinline__ std::uint32_t column_address(std::uint32_t tile, int row, int lane) {
  return tile + (row + lane % 8 + (lane / 16) * 8) * D * 2 + ((((lane / 8) % 2) ^ (lane % 8)) * 16);
}

/// Address of the pieces 2 * step and 2 * step + 1, given the lane's address for step 0 within its row. Row
/// starts are multiples of the swizzle's span, so the change is an exclusive or.
__device__ __forceinline__ std::uint32_t at_step(std::uint32_t address, int step) {
  return address ^ (step * 32);
}

/// c (16 M rows, 64) = a b' for M blocks of 16 rows of `a` and 64 rows of `b`, both tiles with D columns.
/// `a` and `b` are the lane's addresses from row_address and column_address.
template <int D, int M>
__device__ __forceinline__ void product_rows(float (&c)[M][8][4], std::uint32_t a, std::uint32_t b) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) c[m][n][e] = 0.f;
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
    std::uint32_t left[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m) load_matrices(left[m], at_step(a, step) + m * 16 * D * 2);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      std::uint32_t right[4];
      load_matrices(right, at_step(b, step) + n * 16 * D * 2);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        multiply_add(c[m][2 * n], left[m], right[0], right[1]);
        multiply_add(c[m][2 * n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

/// The 16 x 64 block c, rounded to bf16, as left operand of a product over its columns.
__device__ __forceinline__ void as_left(std::uint32_t (&left)[4][4], const float (&c)[8][4]) {
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    left[s][0] = pack_bf16(c[2 * s][0], c[2 * s][1]);
    left[s][1] = pack_bf16(c[2 * s][2], c[2 * s][3]);
    left[s][2] = pack_bf16(c[2 * s + 1][0], c[2 * s + 1][1]);
    left[s][3] = pack_bf16(c[2 * s + 1][2], c[2 * s + 1][3]);
  }
}

/// c (16 M rows, D) += left (16 M, 64) b for a tile b of 64 rows; `b` is the lane's address from row_address.
template <int D, int M>
__device__ __forceinline__ void product_sum(float (&c)[M][D / 8][4], const std::uint32_t (&left)[M][4][4],
                                            std::uint32_t b) {
#pragma unroll
  for (int s = 0; s < 4; ++s) {
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      std::uint32_t right[4];
      load_matrices_transposed(right, at_step(b, n) + s * 16 * D * 2);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        multiply_add(c[m][2 * n], left[m][s], right[0], right[1]);
        multiply_add(c[m][2 * n + 1], left[m][s], right[2], right[3]);
      }
    }
  }
}

/// Clamps a 64-bit difference of positions to what a tile can tell apart, with room for offsets within it.
__device__ __forceinline__ int near(std::int64_t v) {
  constexpr int kFar = 4 * kTileKeys;
  return static_cast<int>(v < -kFar ? -kFar : v > kFar ? kFar : v);
}

/// Tiles of keys that some query of a tile sees: those from `lowest` (its smallest first visible position) to
/// `highest` (its last own position), run by run.
struct KeyWalk {
  const Run* runs;
  int count;
  int run = -1, at = 0, end = 0;  // the tile's first key and the end of the visible keys, within the run

  __device__ __forceinline__ bool next(std::int64_t lowest, std::int64_t highest) {
    at += kTileKeys;
    while (at >= end) {
      if (++run >= count) return false;
      const std::int64_t position = runs[run].position, length = runs[run].count;
      at = static_cast<int>(lowest > position ? min(lowest - position, length) : 0);
      end = static_cast<int>(max(min(highest + 1 - position, length), std::int64_t{0}));
    }
    return true;
  }
  __device__ __forceinline__ std::int64_t row() const { return runs[run].at + at; }
  __device__ __forceinline__ std::int64_t position() const { return runs[run].position + at; }
  __device__ __forceinline__ int keys() const { return min(end - at, kTileKeys); }
};

}  // namespace annulus::cuda
