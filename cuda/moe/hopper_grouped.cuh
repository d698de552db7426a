// What the three grouped kernels share: CUTLASS's pointer-array GEMM for Hopper. 2*M*N*K flop a product.
//
//   grid   one block a multiprocessor, in pairs (clusters of 1 x 2, which share tiles of a); each works through
//          128 x 128 tiles of c, those of one expert after those of the one before
//   each   one warp group loads tiles of 64 columns of a and b by the tensor memory accelerator, two multiply a
//          tile each (wgmma, bf16 in, f32 sums), so that one writes its tile while the other multiplies: with
//          an inner size of 1,000 or 2,000 that is worth more than larger tiles. A tile's sum is kept by one
//          warp group, so bits repeat
//   needs  compute capability 9.0; scratch for the list and for two or three tensor maps a multiprocessor;
//          rows of a, b and c that are multiples of 16 bytes
//   source NVIDIA CUTLASS 4.2, Hopper grouped GEMM; checked against src/ops/cpu
#pragma once
#include <cutlass/cutlass.h>

#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/operations.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "core/check.cuh"
#include "moe/group_list.h"
#include "moe/hopper_grouped.h"

namespace annulus::cuda {

/// c (+)= scale * a b with operands in these layouts. Added: the addend's type, which is c's, or void.
template <class LayoutA, class LayoutB, class Out, class Added>
struct HopperGrouped {
  using In = cutlass::bfloat16_t;
  using Layout = cutlass::layout::RowMajor;  // of c
  using Tile = cute::Shape<cute::_128, cute::_128, cute::_64>;
  using Cluster = cute::Shape<cute::_1, cute::_2, cute::_1>;
  using Sizes = cutlass::gemm::GroupProblemShape<cute::Shape<int, int, int>>;
  static constexpr int kAlign = 16;  // bytes
  static constexpr int kIn = kAlign / static_cast<int>(sizeof(In));
  static constexpr int kOut = kAlign / static_cast<int>(sizeof(Out));

  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, Added, Layout*, kOut, Out, Layout*, kOut,
      cutlass::epilogue::PtrArrayTmaWarpSpecializedPingpong,
      cutlass::epilogue::fusion::LinearCombination<Out, float>>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, In, LayoutA*, kIn, In, LayoutB*, kIn, float, Tile,
      Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename Epilogue::SharedStorage))>,
      cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpong>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<Sizes, Mainloop, Epilogue>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

  using Extents = typename Sizes::UnderlyingProblemShape;
  static_assert(sizeof(Extents) == 3 * sizeof(int));
  // A stride has one number that is not a constant: from one stored row to the next.
  static_assert(sizeof(typename Kernel::InternalStrideA) == sizeof(std::int64_t));
  static_assert(sizeof(typename Kernel::InternalStrideB) == sizeof(std::int64_t));
  static_assert(sizeof(typename Kernel::InternalStrideD) == sizeof(std::int64_t));

  static void cut(cutlass::Status code, std::string_view call,
                  std::source_location at = std::source_location::current()) {
    if (code != cutlass::Status::kSuccess) fail(call, cutlassGetStatusString(code), at);
  }

  static void launch(const GroupedMatmul& a, int multiprocessors, Scratch scratch, cudaStream_t stream) {
    const std::int64_t experts = std::ssize(a.offsets) - 1;
    for (std::int64_t expert = 0; expert < experts;) {
      const GroupList list = launch_group_list(a, expert, scratch, stream);
      if (list.count == 0) continue;
      const GroupArrays& from = list.arrays;
      std::vector<Extents> sizes;
      for (const auto& [M, N, K] : list.sizes) sizes.push_back(cute::make_shape(M, N, K));

      cutlass::KernelHardwareInfo device;
      device.sm_count = multiprocessors;
      typename Gemm::Arguments arguments{};
      arguments.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
      arguments.problem_shape = {list.count, reinterpret_cast<Extents*>(from.sizes), sizes.data()};
      arguments.hw_info = device;
      arguments.mainloop.ptr_A = reinterpret_cast<const In**>(from.a);
      arguments.mainloop.dA = reinterpret_cast<typename Kernel::InternalStrideA*>(from.a_stride);
      arguments.mainloop.ptr_B = reinterpret_cast<const In**>(from.b);
      arguments.mainloop.dB = reinterpret_cast<typename Kernel::InternalStrideB*>(from.b_stride);
      arguments.epilogue.thread.alpha = static_cast<float>(a.scale);
      arguments.epilogue.thread.beta = std::is_void_v<Added> ? 0.f : 1.f;
      if constexpr (!std::is_void_v<Added>) {
        arguments.epilogue.ptr_C = const_cast<const Added**>(reinterpret_cast<Added**>(from.c));
        arguments.epilogue.dC = reinterpret_cast<typename Kernel::InternalStrideC*>(from.c_stride);
      }
      arguments.epilogue.ptr_D = reinterpret_cast<Out**>(from.c);
      arguments.epilogue.dD = reinterpret_cast<typename Kernel::InternalStrideD*>(from.c_stride);

      Gemm gemm;
      cut(gemm.can_implement(arguments), "grouped matmul");
      const auto bytes = static_cast<std::int64_t>(Gemm::get_workspace_size(arguments));
      need(bytes <= list.rest.bytes, "grouped matmul: scratch memory is too small");
      cut(gemm.initialize(arguments, list.rest.data, stream), "grouped matmul: initialize");
      cut(gemm.run(stream), "grouped matmul: run");
    }
  }
};

}  // namespace annulus::cuda
