// c = a b for the rows of each expert: the gradient of the input, whose weights lie as (out, in).
#include "moe/hopper_grouped.cuh"

namespace annulus::cuda {

void launch_hopper_rows(const GroupedMatmul& a, int multiprocessors, Scratch scratch, cudaStream_t stream) {
  HopperGrouped<cutlass::layout::RowMajor, cutlass::layout::RowMajor, cutlass::bfloat16_t, void>::launch(
      a, multiprocessors, scratch, stream);
}

}  // namespace annulus::cuda
