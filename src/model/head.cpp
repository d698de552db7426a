#include "model/head.h"
#include <algorithm>

namespace annulus {
namespace {

/// The final norm and the head's matrix. A tied head lies in the embedding's unit.
struct HeadView {
  Tensor norm, matrix;
};

constexpr int kNorm = 0, kMatrix = 1;

HeadView weights(Work& work) {
  const UnitView head = work.state.use(head_unit(work.config));
  return {head[kNorm], work.config.tied ? work.state.use(kEmbedUnit)[0] : head[kMatrix]};
}

void drop_weights(Work& work) {
  work.state.drop(head_unit(work.config));
  if (work.config.tied) work.state.drop(kEmbedUnit);
}

HeadView open_gradients(Work& work) {
  const UnitView head = work.state.open_gradient(head_unit(work.config));
  return {head[kNorm], work.config.tied ? work.state.open_gradient(kEmbedUnit)[0] : head[kMatrix]};
}

/// A tied matrix is reduced here and once more after the embedding's backward: both add to the shard's sum.
void reduce_gradients(Work& work) {
  work.state.reduce(head_unit(work.config));
  if (work.config.tied) work.state.reduce(kEmbedUnit);
}

}  // namespace

Tensor embed_forward(Work& work, const RowInputs& row) {
  const Tensor table = work.state.use(kEmbedUnit)[0];
  const Tensor x = work.take("x", {row.tokens, work.config.C}, Region::saved);
  work.ops.embed_fwd(Lane::compute, {.ids = row.ids, .table = table, .y = x});
  work.state.drop(kEmbedUnit);
  return x;
}

void embed_backward(Work& work, const RowInputs& row, const Tensor& dx) {
  const Tensor dtable = work.state.open_gradient(kEmbedUnit)[0];
  if (!dtable) return;
  work.ops.embed_bwd(Lane::compute, {.ids = row.ids, .order = row.order, .dy = dx, .dtable = dtable});
  work.state.reduce(kEmbedUnit);
}

void loss(Work& work, const RowInputs& row, const Tensor& x, double scale, const Tensor& dx,
          const Tensor& sums) {
  Ops& ops = work.ops;
  const ModelConfig& c = work.config;
  const std::int64_t T = row.tokens, tile = tile_of(work.options.loss_tile, T);
  const HeadView w = weights(work);
  const bool training = static_cast<bool>(dx);
  const HeadView g = training ? open_gradients(work) : HeadView{};
  {
    Scope scope(work.arena);
    const DType type = work.options.compute;
    const Tensor nll = scope.take("nll", DType::f32, {T}), hit = scope.take("hit", DType::f32, {T});
    const Tensor entropy = scope.take("entropy", DType::f32, {T});
    const Tensor rstd_tile = scope.take("rstd", DType::f32, {tile});
    const Tensor h_tile = scope.take("h", type, {tile, c.C});
    const Tensor logits_tile = scope.take("logits", type, {tile, c.V});
    for (std::int64_t t = 0; t < T; t += tile) {
      const std::int64_t n = std::min(tile, T - t);
      const Tensor h = h_tile.rows(0, n), rstd = rstd_tile.rows(0, n), logits = logits_tile.rows(0, n);
      ops.rmsnorm_fwd(Lane::compute,
                      {.x = x.rows(t, n), .w = w.norm, .y = h, .rstd = rstd, .eps = c.norm_eps});
      ops.matmul(Lane::compute, {.a = h, .b = w.matrix, .c = logits, .trans_b = true});
      ops.loss_tile(Lane::compute, {.logits = logits,
                                    .targets = row.targets.rows(t, n),
                                    .nll = nll.rows(t, n),
                                    .hit = hit.rows(t, n),
                                    .entropy = entropy.rows(t, n),
                                    .scale = scale});
      if (!training) continue;
      const Tensor dlogits = logits, dh = h;  // in place
      if (g.matrix)
        ops.matmul(Lane::compute, {.a = dlogits, .b = h, .c = g.matrix, .add = g.matrix, .trans_a = true});
      ops.matmul(Lane::compute, {.a = dlogits, .b = w.matrix, .c = dh});
      ops.rmsnorm_bwd(
          Lane::compute,
          {.dy = dh, .x = x.rows(t, n), .w = w.norm, .rstd = rstd, .dx = dx.rows(t, n), .dw = g.norm});
    }
    ops.sum(Lane::compute, {.x = nll, .out = sums.span(0, 1)});
    ops.sum(Lane::compute, {.x = hit, .out = sums.span(1, 1)});
    ops.sum(Lane::compute, {.x = entropy, .out = sums.span(2, 1)});
  }
  if (training) reduce_gradients(work);
  drop_weights(work);
}

}  // namespace annulus
