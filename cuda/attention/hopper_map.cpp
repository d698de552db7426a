#include "attention/hopper_map.h"
#include <cuda_runtime.h>
#include <string>
#include "core/check.h"

namespace annulus::cuda {
namespace {

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                            CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/// The driver's function, asked for through the runtime, so that nothing links the driver itself.
Encode encoder() {
  static const Encode found = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t code =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &result);
    if (code != cudaSuccess || result != cudaDriverEntryPointSuccess || entry == nullptr)
      fail("cuTensorMapEncodeTiled", "the driver does not have it");
    return reinterpret_cast<Encode>(entry);
  }();
  return found;
}

/// 128 bytes of columns a box, swizzled.
CUtensorMap make_map(CUtensorMapDataType type, int width, void* base, std::int64_t rows, std::int64_t heads,
                     std::int64_t D, std::int64_t row_stride, int box_rows) {
  CUtensorMap map{};
  const auto bytes = static_cast<cuuint64_t>(width);
  const cuuint64_t sizes[3] = {cuuint64_t(D), cuuint64_t(heads), cuuint64_t(rows)};
  const cuuint64_t strides[2] = {cuuint64_t(D) * bytes, cuuint64_t(row_stride) * bytes};
  const cuuint32_t box[3] = {cuuint32_t(128 / width), 1, cuuint32_t(box_rows)};
  const cuuint32_t step[3] = {1, 1, 1};
  const CUresult code = encoder()(&map, type, 3, base, sizes, strides, box, step,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code != CUDA_SUCCESS) fail("cuTensorMapEncodeTiled", "code " + std::to_string(int(code)));
  return map;
}

}  // namespace

CUtensorMap make_head_map(const void* base, std::int64_t rows, std::int64_t heads, std::int64_t D,
                          std::int64_t row_stride, int box_rows) {
  return make_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(base), rows, heads, D, row_stride,
                  box_rows);
}

CUtensorMap make_sum_map(void* base, std::int64_t rows, std::int64_t heads, std::int64_t D,
                         std::int64_t row_stride, int box_rows) {
  return make_map(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, base, rows, heads, D, row_stride, box_rows);
}

}  // namespace annulus::cuda
