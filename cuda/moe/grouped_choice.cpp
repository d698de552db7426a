#include "moe/grouped_choice.h"

namespace annulus::cuda {
namespace {

constexpr std::int64_t kAlign = 16;  // bytes; what the tensor memory accelerator asks for

/// Every stored row begins at a multiple of 16 bytes, and there is something in it.
bool aligned(const Tensor& t) {
  const std::int64_t row = (t.rank == 3 ? t.shape[2] : t.shape[1]) * bytes_of(t.dtype);
  return row > 0 && row % kAlign == 0 && reinterpret_cast<std::uintptr_t>(t.data) % kAlign == 0;
}

}  // namespace

GroupedEngine choose_grouped(const GroupedMatmul& a, bool hopper) {
  const bool takes = a.a.dtype == DType::bf16 && aligned(a.a) && aligned(a.b) && aligned(a.c);
  return hopper && takes ? GroupedEngine::hopper : GroupedEngine::one_by_one;
}

}  // namespace annulus::cuda
