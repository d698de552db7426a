// The order of a layer's operations. Temporaries end as early as they can: the peak is the attention's
// backward, where only what it reads and writes is alive.
#include "model/layer.h"
#include <algorithm>

namespace annulus {

void Layer::prefetch(std::int64_t layer) {
  for (const int unit : units(layer)) work_.state.prefetch(unit);
}

LayerView Layer::weights() {
  LayerView view = view_layer(work_.state.use(layer_unit(l_)), at_);
  if (at_.adapted())
    view_adapters(work_.state.use(adapter_unit(work_.config, work_.options.lora, l_)), at_, view);
  return view;
}

/// Null where a unit is frozen.
LayerView Layer::open_gradients() {
  LayerView view = view_layer(work_.state.open_gradient(layer_unit(l_)), at_);
  if (at_.adapted())
    view_adapters(work_.state.open_gradient(adapter_unit(work_.config, work_.options.lora, l_)), at_, view);
  return view;
}

void Layer::reduce_gradients() {
  for (const int unit : units(l_)) work_.state.reduce(unit);
}

void Layer::drop_weights() {
  for (const int unit : units(l_)) work_.state.drop(unit);
}

Tensor Layer::norm1(const LayerView& w, const Tensor& x, const Tensor& rstd) {
  Tensor h = work_.take("h", {x.shape[0], work_.config.C});
  work_.ops.rmsnorm_fwd(Lane::compute,
                        {.x = x, .w = w.norm1, .y = h, .rstd = rstd, .eps = work_.config.norm_eps});
  return h;
}

Tensor Layer::project(const LayerView& w, const Tensor& h, Region region) {
  const ModelConfig& c = work_.config;
  Tensor qkv = work_.take("qkv", {h.shape[0], (c.H + 2 * c.G) * c.D}, region);
  Projection(work_, w.qkv, h.shape[0]).forward(h, qkv);
  return qkv;
}

Tensor Layer::norm_and_project(const LayerView& w, const Tensor& x, Region region) {
  const Tensor rstd = work_.take_f32("rstd1", {x.shape[0]});
  const Tensor h = norm1(w, x, rstd);
  work_.give(rstd);
  const Tensor qkv = project(w, h, region);
  work_.give(h);
  return qkv;
}

Layer::Rotated Layer::rotate(const RowInputs& row, const LayerView& w, const Tensor& qkv) {
  const ModelConfig& c = work_.config;
  const std::int64_t T = row.tokens;
  Rotated r{work_.take("q", {T, c.H, c.D}), work_.take("kv", {2, T, c.G, c.D})};
  work_.ops.qk_rope_fwd(Lane::compute, {.qkv = qkv.view({T, c.H + 2 * c.G, c.D}),
                                        .q_norm = w.q_norm,
                                        .k_norm = w.k_norm,
                                        .positions = row.positions,
                                        .inv_freq = work_.inv_freq,
                                        .q = r.q,
                                        .kv = r.kv,
                                        .factor = work_.rope_factor,
                                        .eps = c.norm_eps});
  return {moved(r.q, work_.attention.to_heads(r.q)), moved(r.kv, work_.attention.pair_to_heads(r.kv))};
}

Tensor Layer::moved(const Tensor& from, const Tensor& to) {
  if (to.data != from.data) work_.give(from);
  return to;
}

Layer::Attended Layer::attend(const RowInputs& row, const Rotated& r, Region region) {
  const ModelConfig& c = work_.config;
  const std::int64_t heads = work_.attention.share().H, tokens = row.map->member_tokens();
  const Tensor a = work_.take("attention", {tokens, heads, c.D}, region);
  const Tensor lse = work_.take_f32("lse", {heads, tokens}, region);
  work_.attention.ring().forward(*row.map, window(), row.first_for(window()), r.q, r.kv, a, lse);
  return {work_.attention.to_tokens(a, region).view({row.tokens, c.H * c.D}), lse};
}

Tensor Layer::forward(const RowInputs& row, Tensor x, bool training) {
  const ModelConfig& c = work_.config;
  const std::int64_t T = row.tokens;
  const LayerView w = weights();
  if (sparse()) moe_.prefetch();
  if (l_ + 1 < c.L) prefetch(l_ + 1);
  const bool last = training && l_ + 1 == c.L;  // whose backward comes next
  const bool all = training && saves_all(), attention = training && saves_attention();
  if (training) work_.store.save(l_, Saved::x, x);

  const Tensor qkv = norm_and_project(w, x, all ? Region::saved : Region::workspace);
  const Rotated r = rotate(row, w, qkv);
  if (all)
    work_.store.save(l_, Saved::qkv, qkv);
  else
    work_.give(qkv);
  const Attended o = attend(row, r, attention ? Region::saved : Region::workspace);
  work_.give(r.q);
  work_.give(r.kv);
  if (attention) {
    work_.store.save(l_, Saved::a, o.a);
    work_.store.save(l_, Saved::lse, o.lse);
  }

  const Tensor x1 = training ? work_.take(all ? "x1" : "x", {T, c.C}, Region::saved) : x;
  Projection(work_, w.o, T).forward(o.a, x1, x);
  if (!attention) {
    work_.give(o.a);
    work_.give(o.lse);
  }
  Tensor y = x1, gu;
  if (all) {
    work_.store.save(l_, Saved::x1, x1);
    y = work_.take("x", {T, c.C}, Region::saved);
    if (!sparse()) gu = work_.take("gate_up", {T, 2 * c.F}, Region::saved);
  }
  if (sparse())
    moe_.forward(row, w, x1, y, training, last);
  else
    mlp_forward(w, x1, y, gu);
  if (gu) work_.store.save(l_, Saved::gu, gu);
  if (training) work_.store.settle(l_ - 1);
  if (!last) drop_weights();
  return y;
}

void Layer::mlp_forward(const LayerView& w, const Tensor& x1, const Tensor& y, const Tensor& gu_saved) {
  Ops& ops = work_.ops;
  const ModelConfig& c = work_.config;
  const std::int64_t T = x1.shape[0], tile = tile_of(work_.options.mlp_tile, T);
  Scope scope(work_.arena);
  const DType type = work_.options.compute;
  const Tensor rstd = scope.take("rstd2", DType::f32, {tile});
  const Tensor h2 = scope.take("h2", type, {tile, c.C});
  const Tensor gu_tile = gu_saved ? Tensor{} : scope.take("gate_up", type, {tile, 2 * c.F});
  const Tensor s = scope.take("swiglu", type, {tile, c.F});
  Projection gate_up(work_, w.gu, tile), down(work_, w.d, tile);
  for (const auto [t, n] : Tiles(work_.queue, T, tile)) {
    const Tensor gu = gu_saved ? gu_saved.rows(t, n) : gu_tile.rows(0, n);
    ops.rmsnorm_fwd(
        Lane::compute,
        {.x = x1.rows(t, n), .w = w.norm2, .y = h2.rows(0, n), .rstd = rstd.rows(0, n), .eps = c.norm_eps});
    gate_up.forward(h2.rows(0, n), gu);
    ops.swiglu_fwd(Lane::compute, {.gu = gu, .h = s.rows(0, n)});
    down.forward(s.rows(0, n), y.rows(t, n), x1.rows(t, n));
  }
}

void Layer::end(const Tensor& t, Saved slot) {
  if (saves_attention())
    work_.store.release(l_, slot);
  else
    work_.give(t);
}

void Layer::look_ahead() {
  if (l_ == 0) return;
  prefetch(l_ - 1);
  work_.store.fetch(l_ - 1);
  if (work_.options.lean_backward) look_ahead_experts();
}

/// Experts are gathered when those of this layer are gone, behind the attention's backward at the earliest.
void Layer::look_ahead_experts() {
  if (l_ == 0 || !work_.config.has_experts(l_ - 1)) return;
  for (const int unit : expert_units(work_.config, work_.options.lora, l_ - 1)) work_.state.prefetch(unit);
}

void Layer::backward(const RowInputs& row, const Tensor& dx) {
  const ModelConfig& c = work_.config;
  const ModelOptions& options = work_.options;
  const std::int64_t T = row.tokens;
  const LayerView w = weights();
  const LayerView g = open_gradients();
  if (!options.lean_backward) look_ahead();
  const Tensor x = work_.store.get(l_, Saved::x);

  Tensor qkv;
  Rotated r;
  Attended o;
  if (saves_attention()) {
    o.a = work_.store.get(l_, Saved::a);
    o.lse = work_.store.get(l_, Saved::lse);
  } else {
    qkv = norm_and_project(w, x, Region::workspace);
    r = rotate(row, w, qkv);
    if (options.lean_backward) {
      work_.give(qkv);
      qkv = {};
    }
    o = attend(row, r, Region::workspace);
  }

  if (saves_all()) {
    const Tensor x1 = work_.store.get(l_, Saved::x1);
    if (sparse()) {
      moe_.backward(row, w, g, x1, dx);
    } else {
      mlp_backward(w, g, x1, work_.store.get(l_, Saved::gu), dx);
      work_.store.release(l_, Saved::gu);
    }
    work_.store.release(l_, Saved::x1);
    qkv = work_.store.get(l_, Saved::qkv);
  } else {
    const Tensor x1 = work_.take("x1", {T, c.C});
    Projection(work_, w.o, T).forward(o.a, x1, x);
    if (sparse())
      moe_.backward(row, w, g, x1, dx);
    else
      mlp_backward(w, g, x1, {}, dx);
    work_.give(x1);
  }
  if (!options.lean_backward) look_ahead_experts();
  attention_backward(row, w, g, o, r, qkv, dx);
  work_.store.release(l_, Saved::x);
  reduce_gradients();
  drop_weights();
}

void Layer::mlp_backward(const LayerView& w, const LayerView& g, const Tensor& x1, const Tensor& gu_saved,
                         const Tensor& dx) {
  Ops& ops = work_.ops;
  const ModelConfig& c = work_.config;
  const std::int64_t T = x1.shape[0], tile = tile_of(work_.options.mlp_tile, T);
  Scope scope(work_.arena);
  const DType type = work_.options.compute;
  const Tensor rstd_tile = scope.take("rstd2", DType::f32, {tile});
  const Tensor h2_tile = scope.take("h2", type, {tile, c.C});
  const Tensor gu_tile = gu_saved ? Tensor{} : scope.take("gate_up", type, {tile, 2 * c.F});
  const Tensor ds_tile = scope.take("dswiglu", type, {tile, c.F});
  Projection gate_up(work_, w.gu, tile, g.gu), down(work_, w.d, tile, g.d);
  for (const auto [t, n] : Tiles(work_.queue, T, tile)) {
    const Tensor rstd = rstd_tile.rows(0, n), h2 = h2_tile.rows(0, n), ds = ds_tile.rows(0, n);
    const Tensor gu = gu_saved ? gu_saved.rows(t, n) : gu_tile.rows(0, n);
    const Tensor dy = dx.rows(t, n), x = x1.rows(t, n);
    ops.rmsnorm_fwd(Lane::compute, {.x = x, .w = w.norm2, .y = h2, .rstd = rstd, .eps = c.norm_eps});
    if (!gu_saved) gate_up.forward(h2, gu);
    down.backward(dy);
    down.input_gradient(ds);
    const Tensor s = ds, dgu = gu;  // in place
    ops.swiglu_bwd(Lane::compute, {.gu = gu, .dh = ds, .h = s, .dgu = dgu});
    down.weight_gradients(s);
    gate_up.backward(dgu);
    gate_up.weight_gradients(h2);
    const Tensor dh2 = h2;
    gate_up.input_gradient(dh2);
    ops.rmsnorm_bwd(Lane::compute,
                    {.dy = dh2, .x = x, .w = w.norm2, .rstd = rstd, .dres = dy, .dx = dy, .dw = g.norm2});
  }
}

void Layer::attention_backward(const RowInputs& row, const LayerView& w, const LayerView& g,
                               const Attended& o, Rotated r, Tensor qkv, const Tensor& dx) {
  const ModelConfig& c = work_.config;
  const bool lean = work_.options.lean_backward;
  const std::int64_t T = row.tokens;
  if (!r.q) {
    if (!qkv) qkv = norm_and_project(w, work_.store.get(l_, Saved::x), Region::workspace);
    r = rotate(row, w, qkv);
    if (lean && !saves_all()) {
      work_.give(qkv);
      qkv = {};
    }
  }
  if (lean) {
    work_.store.park(l_, Saved::x);
    work_.state.release_reduced();
  }
  // From here on the attention's tensors are of this rank's heads.
  ContextAttention& attention = work_.attention;
  const Tensor da_tokens = work_.take("dattention", {T, c.H, c.D});
  {
    Projection out(work_, w.o, T, g.o);
    out.backward(dx);
    out.weight_gradients(o.a);
    out.input_gradient(da_tokens.view({T, c.H * c.D}));
  }
  const Tensor a = attention.to_heads(o.a.view({T, c.H, c.D}));
  const bool own = a.data != o.a.data;
  if (own) end(o.a, Saved::a);
  const Tensor da = moved(da_tokens, attention.to_heads(da_tokens));

  RingAttention& ring = attention.ring();
  const HeadShare& share = attention.share();
  const std::int64_t tokens = row.map->member_tokens();
  const Tensor dq = work_.arena.take(Region::workspace, "dq", ring.grad_dtype(), {tokens, share.H, c.D});
  const Tensor dkv = work_.arena.take(Region::workspace, "dkv", ring.grad_dtype(), {2, tokens, share.G, c.D});
  ring.backward(*row.map, window(), row.first_for(window()), r.q, r.kv, a, da, o.lse, dq, dkv);
  if (work_.probe != nullptr)
    (*work_.probe)({.map = row.map,
                    .window = window(),
                    .q = r.q,
                    .kv = r.kv,
                    .o = a,
                    .d_o = da,
                    .lse = o.lse,
                    .dq = dq,
                    .dkv = dkv});
  work_.give(da);
  work_.give(r.kv);
  work_.give(r.q);
  end(o.lse, Saved::lse);
  if (own)
    work_.give(a);
  else
    end(o.a, Saved::a);
  const Tensor dq_tokens = attention.to_tokens(dq);
  projection_backward(row, w, g, qkv, dq_tokens, attention.pair_to_tokens(dkv), dx);
}

void Layer::projection_backward(const RowInputs& row, const LayerView& w, const LayerView& g, Tensor qkv,
                                const Tensor& dq, const Tensor& dkv, const Tensor& dx) {
  Ops& ops = work_.ops;
  const ModelConfig& c = work_.config;
  const std::int64_t T = row.tokens, heads = c.H + 2 * c.G;
  const Tensor x = work_.store.get(l_, Saved::x);
  if (work_.options.lean_backward) look_ahead();
  const Tensor rstd = work_.take_f32("rstd1", {T});
  const Tensor h = norm1(w, x, rstd);
  if (!qkv) qkv = project(w, h, Region::workspace);
  const Tensor dqkv = qkv;  // in place
  ops.qk_rope_bwd(Lane::compute, {.dq = dq,
                                  .dkv = dkv,
                                  .qkv = qkv.view({T, heads, c.D}),
                                  .q_norm = w.q_norm,
                                  .k_norm = w.k_norm,
                                  .positions = row.positions,
                                  .inv_freq = work_.inv_freq,
                                  .dqkv = dqkv.view({T, heads, c.D}),
                                  .dq_norm = g.q_norm,
                                  .dk_norm = g.k_norm,
                                  .factor = work_.rope_factor,
                                  .eps = c.norm_eps});
  work_.give(dkv);
  work_.give(dq);
  const Tensor dh = h;
  {
    Projection in(work_, w.qkv, T, g.qkv);
    in.backward(dqkv);
    in.weight_gradients(h);
    in.input_gradient(dh);
  }
  if (saves_all())
    work_.store.release(l_, Saved::qkv);
  else
    work_.give(qkv);
  ops.rmsnorm_bwd(Lane::compute,
                  {.dy = dh, .x = x, .w = w.norm1, .rstd = rstd, .dres = dx, .dx = dx, .dw = g.norm1});
  work_.give(h);
  work_.give(rstd);
}

}  // namespace annulus
