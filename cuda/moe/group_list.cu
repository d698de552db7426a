// Writes the sizes and addresses of matrix products. Some microseconds, whatever their sizes.
//
//   grid   one block
//   each   thread writes one product
//   needs  scratch of 16 KB; the rows travel by value, so that the host need not keep them
#include "kernels/common.cuh"
#include "moe/group_list.h"

namespace annulus::cuda {
namespace {

struct Rows {
  std::int64_t from[kListed];
  std::int32_t count[kListed];
  std::int32_t expert[kListed];
};

/// What all products share: where a, b and c begin, the bytes from one expert's to the next (0: from one row
/// to the next), elements of a stored row.
struct Operand {
  char* data;
  std::int64_t matrix, row, stride;
};

__device__ __forceinline__ char* place_of(const Operand& o, std::int64_t expert, std::int64_t from) {
  return o.data + (o.matrix != 0 ? expert * o.matrix : from * o.row);
}

__global__ void __launch_bounds__(kListed) group_list_kernel(Rows rows, int count, Operand a, Operand b,
                                                             Operand c, int M, int N, int K,  // -1: the rows
                                                             GroupArrays to) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= count) return;
  to.sizes[3 * i] = M < 0 ? rows.count[i] : M;
  to.sizes[3 * i + 1] = N;
  to.sizes[3 * i + 2] = K < 0 ? rows.count[i] : K;
  to.a[i] = place_of(a, rows.expert[i], rows.from[i]);
  to.b[i] = place_of(b, rows.expert[i], rows.from[i]);
  to.c[i] = place_of(c, rows.expert[i], rows.from[i]);
  to.a_stride[i] = a.stride;
  to.b_stride[i] = b.stride;
  to.c_stride[i] = c.stride;
}

Operand operand(const Tensor& t) {
  const std::int64_t bytes = bytes_of(t.dtype);
  return {static_cast<char*>(t.data), t.rank == 3 ? t.row_size() * bytes : 0, t.row_size() * bytes,
          t.rank == 3 ? t.shape[2] : t.shape[1]};
}

template <class T>
T* take(Scratch& from, std::int64_t count) {
  const std::int64_t bytes = ceil_div(count * std::int64_t{sizeof(T)}, 256) * 256;
  need(bytes <= from.bytes, "grouped matmul: scratch memory is too small");
  T* const taken = static_cast<T*>(from.data);
  from.data = static_cast<char*>(from.data) + bytes;
  from.bytes -= bytes;
  return taken;
}

int as_int(std::int64_t size) {
  need(size <= 0x7fffffff, "grouped matmul: a product has a side of more than 2^31 - 1");
  return static_cast<int>(size);
}

}  // namespace

GroupList launch_group_list(const GroupedMatmul& a, std::int64_t& expert, Scratch scratch,
                            cudaStream_t stream) {
  const std::int64_t experts = std::ssize(a.offsets) - 1;
  const int M = a.gradient ? as_int(a.a.shape[1]) : -1, K = a.gradient ? -1 : as_int(a.a.shape[1]);
  const int N = as_int(a.gradient ? a.b.shape[1] : a.c.shape[1]);
  GroupList list;
  Rows rows;
  for (; expert < experts && list.count < kListed; ++expert) {
    const std::int64_t from = a.offsets[static_cast<std::size_t>(expert)];
    const int count = as_int(a.offsets[static_cast<std::size_t>(expert) + 1] - from);
    if (count == 0) continue;
    rows.from[list.count] = from;
    rows.count[list.count] = count;
    rows.expert[list.count++] = as_int(expert);
    list.sizes.push_back({M < 0 ? count : M, N, K < 0 ? count : K});
  }
  list.rest = scratch;
  GroupArrays& to = list.arrays;
  to.sizes = take<int>(list.rest, 3 * kListed);
  to.a = take<const void*>(list.rest, kListed);
  to.b = take<const void*>(list.rest, kListed);
  to.c = take<void*>(list.rest, kListed);
  to.a_stride = take<std::int64_t>(list.rest, kListed);
  to.b_stride = take<std::int64_t>(list.rest, kListed);
  to.c_stride = take<std::int64_t>(list.rest, kListed);
  if (list.count == 0) return list;
  group_list_kernel<<<1, kListed, 0, stream>>>(rows, list.count, operand(a.a), operand(a.b), operand(a.c), M,
                                               N, K, to);
  launched("group_list_kernel");
  return list;
}

}  // namespace annulus::cuda
