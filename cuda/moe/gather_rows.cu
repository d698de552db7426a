// Rows by index. Memory bound: at most 2*I*C*sizeof(x) bytes.
//
//   grid   a block a row of y
//   each   thread copies pieces of 16 bytes, or single elements where rows have other sizes
//   needs  offsets are 64-bit
//   source checked against src/ops/cpu/dispatch.cpp
#include "kernels/common.cuh"
#include "moe/gather_rows.h"

namespace annulus::cuda {
namespace {

constexpr int kThreads = 128;

template <class Piece>
__global__ void __launch_bounds__(kThreads) gather_rows_kernel(const Piece* __restrict__ x,  // (N, pieces)
                                                               const std::int32_t* __restrict__ index,  // (I)
                                                               Piece* __restrict__ y,  // (I, pieces)
                                                               std::int64_t I, std::int64_t pieces) {
  for (std::int64_t i = blockIdx.x; i < I; i += gridDim.x) {
    const std::int64_t from = index[i];
#pragma unroll 4
    for (std::int64_t c = threadIdx.x; c < pieces; c += kThreads)
      y[i * pieces + c] = from < 0 ? Piece{} : x[from * pieces + c];
  }
}

}  // namespace

void launch_gather_rows(const GatherRows& a, cudaStream_t stream) {
  const std::int64_t I = a.index.shape[0], C = a.x.shape[1];
  if (I * C == 0) return;
  const auto gather = [&]<class Piece>(Piece) {
    const std::int64_t pieces = C * bytes_of(a.x.dtype) / static_cast<std::int64_t>(sizeof(Piece));
    gather_rows_kernel<Piece><<<grid_for(I), kThreads, 0, stream>>>(static_cast<const Piece*>(a.x.data),
                                                                    device<std::int32_t>(a.index),
                                                                    static_cast<Piece*>(a.y.data), I, pieces);
    launched("gather_rows_kernel");
  };
  const std::int64_t width = 16 / bytes_of(a.x.dtype);
  if (wide_rows(a.x, width) && wide_rows(a.y, width))
    gather(uint4{});
  else if (a.x.dtype == DType::bf16)
    gather(std::uint16_t{});
  else
    gather(std::uint32_t{});
}

}  // namespace annulus::cuda
