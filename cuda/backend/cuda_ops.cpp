#include "backend/cuda_ops.h"

#include "kernels/adamw.h"
#include "kernels/add.h"
#include "kernels/attention_delta.h"
#include "kernels/cast.h"
#include "kernels/column_sum.h"
#include "kernels/embed.h"
#include "kernels/loss_tile.h"
#include "kernels/qk_rope.h"
#include "kernels/rmsnorm.h"
#include "kernels/sum.h"
#include "kernels/swiglu.h"
#include "moe/combine_rows.h"
#include "moe/dispatch_index.h"
#include "moe/expert_index.h"
#include "moe/expert_swiglu_bwd.h"
#include "moe/gather_rows.h"
#include "moe/route_bwd.h"
#include "moe/route_count.h"
#include "moe/route_fwd.h"
#include "ops/check.h"

namespace annulus::cuda {
namespace {

constexpr std::int64_t kScratchBytes = std::int64_t{64} << 20;

bool on_hopper() {
  int device = 0, major = 0, minor = 0;
  cu(cudaGetDevice(&device), "cudaGetDevice");
  cu(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  cu(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
  return major == 9 && minor == 0;
}

}  // namespace

CudaOps::CudaOps(CudaQueue& queue, DeviceMemory& memory, const CudaOptions& options)
    : queue_(queue),
      memory_(memory),
      grouped_(matmul_, on_hopper()),
      attention_(queue, options.deterministic, on_hopper(), options.attention) {
  scratch(Lane::compute);
}

Scratch CudaOps::scratch(Lane lane) {
  DeviceBuffer& buffer = scratch_[static_cast<std::size_t>(lane)];
  if (buffer.data() == nullptr) buffer = DeviceBuffer(memory_, kScratchBytes, "a lane's scratch");
  return {buffer.data(), buffer.bytes()};
}

void CudaOps::embed_fwd(Lane lane, const EmbedFwd& a) {
  check(a);
  launch_embed_fwd(a, on(lane));
}
void CudaOps::embed_bwd(Lane lane, const EmbedBwd& a) {
  check(a);
  launch_embed_bwd(a, on(lane));
}
void CudaOps::rmsnorm_fwd(Lane lane, const RmsNormFwd& a) {
  check(a);
  launch_rmsnorm_fwd(a, on(lane));
}
void CudaOps::rmsnorm_bwd(Lane lane, const RmsNormBwd& a) {
  check(a);
  launch_rmsnorm_bwd(a, scratch(lane), on(lane));
}
void CudaOps::matmul(Lane lane, const Matmul& a) {
  check(a);
  matmul_.run(a, scratch(lane), on(lane));
}
void CudaOps::column_sum(Lane lane, const ColumnSum& a) {
  check(a);
  launch_column_sum(a, scratch(lane), on(lane));
}
void CudaOps::qk_rope_fwd(Lane lane, const QkRopeFwd& a) {
  check(a);
  launch_qk_rope_fwd(a, on(lane));
}
void CudaOps::qk_rope_bwd(Lane lane, const QkRopeBwd& a) {
  check(a);
  launch_qk_rope_bwd(a, scratch(lane), on(lane));
}
void CudaOps::attention_fwd(Lane lane, const AttentionFwd& a) {
  check(a, 0);  // scratch is checked where it is handed out
  attention_.forward(lane, a);
}
void CudaOps::attention_delta(Lane lane, const AttentionDelta& a) {
  check(a);
  launch_attention_delta(a, on(lane));
}
void CudaOps::attention_bwd(Lane lane, const AttentionBwd& a) {
  check(a, 0);
  attention_.backward(lane, a);
}
void CudaOps::swiglu_fwd(Lane lane, const SwigluFwd& a) {
  check(a);
  launch_swiglu_fwd(a, on(lane));
}
void CudaOps::swiglu_bwd(Lane lane, const SwigluBwd& a) {
  check(a);
  launch_swiglu_bwd(a, on(lane));
}
void CudaOps::loss_tile(Lane lane, const LossTile& a) {
  check(a);
  launch_loss_tile(a, on(lane));
}
void CudaOps::sum(Lane lane, const Sum& a) {
  check(a);
  launch_sum(a, scratch(lane), on(lane));
}
void CudaOps::add(Lane lane, const Add& a) {
  check(a);
  launch_add(a, on(lane));
}
void CudaOps::cast(Lane lane, const Cast& a) {
  check(a);
  launch_cast(a, on(lane));
}
void CudaOps::adamw(Lane lane, const AdamW& a) {
  check(a);
  launch_adamw(a, on(lane));
}
void CudaOps::route_fwd(Lane lane, const RouteFwd& a) {
  check(a);
  launch_route_fwd(a, scratch(lane), on(lane));
}
void CudaOps::route_bwd(Lane lane, const RouteBwd& a) {
  check(a);
  launch_route_bwd(a, on(lane));
}
void CudaOps::route_count(Lane lane, const RouteCount& a) {
  check(a);
  launch_route_count(a, on(lane));
}
void CudaOps::dispatch_index(Lane lane, const DispatchIndex& a) {
  check(a);
  launch_dispatch_index(a, scratch(lane), on(lane));
}
void CudaOps::expert_index(Lane lane, const ExpertIndex& a) {
  check(a);
  launch_expert_index(a, scratch(lane), on(lane));
}
void CudaOps::gather_rows(Lane lane, const GatherRows& a) {
  check(a);
  launch_gather_rows(a, on(lane));
}
void CudaOps::combine_rows(Lane lane, const CombineRows& a) {
  check(a);
  launch_combine_rows(a, on(lane));
}
void CudaOps::expert_swiglu_bwd(Lane lane, const ExpertSwigluBwd& a) {
  check(a);
  launch_expert_swiglu_bwd(a, on(lane));
}
void CudaOps::grouped_matmul(Lane lane, const GroupedMatmul& a) {
  check(a);
  grouped_.run(a, scratch(lane), on(lane));
}
std::int64_t CudaOps::attention_fwd_bytes(const AttentionFwd& a) const {
  return attention_.forward_bytes(a);
}
std::int64_t CudaOps::attention_bwd_bytes(const AttentionBwd& a) const {
  return attention_.backward_bytes(a);
}

}  // namespace annulus::cuda
