// c (+)= a b' for the rows of each expert: the forward, whose weights lie as (out, in).
#include "moe/hopper_grouped.cuh"

namespace annulus::cuda {

void launch_hopper_rows_trans(const GroupedMatmul& a, int multiprocessors, Scratch scratch,
                              cudaStream_t stream) {
  using Type = cutlass::bfloat16_t;
  using A = cutlass::layout::RowMajor;
  using B = cutlass::layout::ColumnMajor;
  if (a.add)
    HopperGrouped<A, B, Type, Type>::launch(a, multiprocessors, scratch, stream);
  else
    HopperGrouped<A, B, Type, void>::launch(a, multiprocessors, scratch, stream);
}

}  // namespace annulus::cuda
