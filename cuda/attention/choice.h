// Which engine computes a block of attention: one function, no CUDA header.
#pragma once
#include <cstdint>
#include <optional>
#include "ops/cuda_plugin.h"
#include "ops/ops.h"

namespace annulus::cuda {

/// cudnn: the library. hopper: ours, on warpgroup matmul. own: ours, on any GPU from 8.0 on.
using Engine = AttentionKernel;

/// What the blocks of one call have in common.
struct AttentionTraits {
  DType type = DType::bf16;
  std::int64_t H = 0, G = 0, D = 0;
  std::int64_t row_stride = 0;  // elements; the largest among q, k, v, o and their gradients
  bool aligned = true;          // all addresses and row strides are multiples of 16 bytes
  bool backward = false;
  bool deterministic = false;
  bool hopper = false;           // the device has compute capability 9.0
  std::optional<Engine> only{};  // no other may be chosen
};

/// Whether the engine can do the block. Odd lengths stay away from cuDNN: its backward has given NaN for some
/// of them, and a graph for each length of a packed row would be built anew. So does what must be
/// deterministic backwards.
bool can(Engine, const AttentionBlock&, const AttentionTraits&);

/// The fastest that can do the block, by rates measured on an H200 (bench/results/h200.md). On Hopper our
/// kernels lead in the forward, and in the backward wherever cuDNN cannot go or would not give the same bits
/// twice. Elsewhere cuDNN takes full blocks and causal squares in bf16, from a size on below which starting
/// it costs more than it saves. An error when `only` cannot do the block.
Engine choose(const AttentionBlock&, const AttentionTraits&);

/// Rows of a block over which cuDNN's offsets stay below 2^31 elements.
std::int64_t cudnn_rows(const AttentionTraits&);

inline constexpr std::int64_t kCudnnSmallest = 512;  // queries and keys
inline constexpr std::int64_t kCudnnMultiple = 128;  // both are multiples of it

}  // namespace annulus::cuda
