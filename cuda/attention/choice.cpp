#include "attention/choice.h"

#include <algorithm>
#include <limits>

namespace annulus::cuda {

std::int64_t cudnn_rows(const AttentionTraits& t) {
  return std::numeric_limits<std::int32_t>::max() / std::max<std::int64_t>(t.row_stride, 1);
}

namespace {

/// Positions within a block are 31-bit there, offsets 64-bit.
bool hopper_can(const AttentionBlock& block, const AttentionTraits& t) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  return t.hopper && t.type == DType::bf16 && (t.D == 128 || (t.D == 64 && !t.backward)) && t.aligned &&
         block.q_count < kMost && block.k_count < kMost;
}

}  // namespace

Engine choose(const AttentionBlock& block, const AttentionTraits& t) {
  const auto fits = [&](std::int64_t count) {
    return count >= kCudnnSmallest && count % kCudnnMultiple == 0 && count <= cudnn_rows(t);
  };
  const bool library = block.cover != Cover::partial && t.type == DType::bf16 && (t.D == 64 || t.D == 128) &&
                       t.H % t.G == 0 && t.aligned && !(t.backward && t.deterministic) &&
                       fits(block.q_count) && fits(block.k_count) &&
                       (block.cover == Cover::full || block.q_count == block.k_count);
  const bool ours = hopper_can(block, t);
  if (ours && (!library || (!t.backward && t.D == 128))) return Engine::hopper;
  return library ? Engine::cudnn : Engine::own;
}

}  // namespace annulus::cuda
