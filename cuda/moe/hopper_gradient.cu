// c += a' b over the rows of each expert, in f32: the gradient of its weights.
#include "moe/hopper_grouped.cuh"

namespace annulus::cuda {

void launch_hopper_gradient(const GroupedMatmul& a, int multiprocessors, Scratch scratch,
                            cudaStream_t stream) {
  HopperGrouped<cutlass::layout::ColumnMajor, cutlass::layout::RowMajor, float, float>::launch(
      a, multiprocessors, scratch, stream);
}

}  // namespace annulus::cuda
