// c = a b' for the rows of each expert: the forward, whose weights lie as (out, in).
#include "moe/hopper_grouped.cuh"

namespace annulus::cuda {

void launch_hopper_rows_trans(const GroupedMatmul& a, int multiprocessors, Scratch scratch,
                              cudaStream_t stream) {
  HopperGrouped<cutlass::layout::RowMajor, cutlass::layout::ColumnMajor, cutlass::bfloat16_t, void>::launch(
      a, multiprocessors, scratch, stream);
}

}  // namespace annulus::cuda
