// What attention's forward and backward share on the CPU: tiles of queries against tiles of keys, and which
// keys each query sees.
#pragma once
#include <algorithm>
#include <array>
#include "ops/cpu/exp.h"
#include "ops/cpu/loops.h"
#include "ops/ops.h"

namespace annulus::ref {

inline constexpr std::int64_t kQueries = 128, kKeys = 512;  // of one tile; scores then fit the L2 cache

/// Keys [lo, hi) of a block that each query of a tile sees, and the range [begin, end) that holds them all.
struct Visible {
  std::array<std::int64_t, kQueries> lo, hi;
  std::int64_t begin = 0, end = 0;
};

/// Queries [i, i + n) of the block. Fails where the cover promises more than `first` (Tq) allows.
inline Visible visible(const AttentionBlock& b, const std::int64_t* first, std::int64_t i, std::int64_t n) {
  Visible s;
  s.begin = b.k_count;
  for (std::int64_t r = 0; r < n; ++r) {
    const std::int64_t own = b.q_position + i + r;
    std::int64_t lo = std::max<std::int64_t>(first[b.q_at + i + r] - b.k_position, 0);
    std::int64_t hi = std::min(own + 1 - b.k_position, b.k_count);
    need(b.cover == Cover::partial || b.k_count == 0 || lo == 0, "attention block: cover shows hidden keys");
    if (hi <= lo) lo = hi = 0;
    s.lo[static_cast<std::size_t>(r)] = lo;
    s.hi[static_cast<std::size_t>(r)] = hi;
    if (lo < hi) s.begin = std::min(s.begin, lo);
    s.end = std::max(s.end, hi);
  }
  return s;
}

/// One head's rows of a (N, h, D) tensor as f32: the tensor itself, or a widened copy in `scratch`.
struct Head {
  const float* data;
  std::int64_t ld;
};

template <class T>
Head head_rows(const Tensor& t, std::int64_t head, std::int64_t row, std::int64_t count, float* scratch) {
  const std::int64_t D = t.shape[2];
  const T* from = t.as<T>() + row * t.stride() + head * D;
  if constexpr (std::is_same_v<T, float>) {
    return {from, t.stride()};
  } else {
    for (std::int64_t i = 0; i < count; ++i) load(from + i * t.stride(), D, scratch + i * D);
    return {scratch, D};
  }
}

}  // namespace annulus::ref
