#include "moe/grouped_matmul.h"

#include "core/check.cuh"
#include "moe/grouped_choice.h"
#include "moe/hopper_grouped.h"
#include "ops/moe_products.h"

namespace annulus::cuda {

GroupedMatmulEngine::GroupedMatmulEngine(MatmulEngine& matmul, bool hopper)
    : matmul_(matmul), hopper_(hopper) {
  int device = 0;
  cu(cudaGetDevice(&device), "cudaGetDevice");
  cu(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, device),
     "cudaDeviceGetAttribute");
}

void GroupedMatmulEngine::run(const GroupedMatmul& a, Scratch scratch, cudaStream_t stream) {
  if (choose_grouped(a, hopper_) == GroupedEngine::one_by_one)
    for_each_product(a, [&](const Matmul& m) { matmul_.run(m, scratch, stream); });
  else if (a.gradient)
    launch_hopper_gradient(a, multiprocessors_, scratch, stream);
  else if (a.trans_b)
    launch_hopper_rows_trans(a, multiprocessors_, scratch, stream);
  else
    launch_hopper_rows(a, multiprocessors_, scratch, stream);
}

}  // namespace annulus::cuda
