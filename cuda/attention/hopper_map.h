// Tensor maps for the bulk copy engine, made on the host.
#pragma once
#include <cuda.h>
#include <cstdint>

namespace annulus::cuda {

/// (rows, heads, D) in bf16 at `base`, `row_stride` elements from row to row, as boxes of (box_rows, 1 head,
/// 64 columns) with the 128-byte swizzle. Rows beyond `rows` read as zero.
CUtensorMap make_head_map(const void* base, std::int64_t rows, std::int64_t heads, std::int64_t D,
                          std::int64_t row_stride, int box_rows);

/// (rows, heads, D) in f32 at `base`, as boxes of (box_rows, 1 head, 32 columns): for sums into memory.
CUtensorMap make_sum_map(void* base, std::int64_t rows, std::int64_t heads, std::int64_t D,
                         std::int64_t row_stride, int box_rows);

}  // namespace annulus::cuda
