#include "attention/choice.h"

#include <algorithm>
#include <limits>

namespace annulus::cuda {

std::int64_t cudnn_rows(const AttentionTraits& t) {
  return std::numeric_limits<std::int32_t>::max() / std::max<std::int64_t>(t.row_stride, 1);
}

bool can(Engine engine, const AttentionBlock& block, const AttentionTraits& t) {
  constexpr std::int64_t kMost = std::int64_t{1}
                                 << 30;  // positions within a block are 31-bit, offsets 64-bit
  const auto fits = [&](std::int64_t count) {
    return count >= kCudnnSmallest && count % kCudnnMultiple == 0 && count <= cudnn_rows(t);
  };
  switch (engine) {
    case Engine::cudnn:
      return block.cover != Cover::partial && t.type == DType::bf16 && (t.D == 64 || t.D == 128) &&
             t.H % t.G == 0 && t.aligned && !(t.backward && t.deterministic) && fits(block.q_count) &&
             fits(block.k_count) && (block.cover == Cover::full || block.q_count == block.k_count);
    case Engine::hopper:
      return t.hopper && t.type == DType::bf16 && (t.D == 64 || t.D == 128) && t.aligned &&
             block.q_count < kMost && block.k_count < kMost;
    case Engine::own:
      return true;
  }
  return false;
}

Engine choose(const AttentionBlock& block, const AttentionTraits& t) {
  if (t.only) {
    need(can(*t.only, block, t), "the attention engine that was asked for cannot do this block");
    return *t.only;
  }
  const bool library = can(Engine::cudnn, block, t);
  if (can(Engine::hopper, block, t) && (!library || (!t.backward && t.D == 128))) return Engine::hopper;
  return library ? Engine::cudnn : Engine::own;
}

}  // namespace annulus::cuda
