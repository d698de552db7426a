// Tokens are routed first, so that all ranks know what will travel; then the tiles go through a pipeline in
// which rows leave, are expanded and computed where their experts are, and come home as one sum a rank.
#include "model/moe.h"
#include <algorithm>

namespace annulus {

struct Moe::Room {
  Room(Work& work, const ExpertBuffers& b, bool backward) : scope(work.arena) {
    const ModelConfig& c = work.config;
    const DType T = work.options.compute;
    const auto take = [&](const char* name, DType type, std::initializer_list<std::int64_t> shape) {
      return scope.take(name, type, shape);
    };
    rstd = take("rstd2", DType::f32, {b.tokens});
    h2 = take("h2", T, {b.tokens, c.C});
    logits = take("router logits", DType::f32, {b.tokens, c.E});
    token = take("sent tokens", DType::i32, {b.sent});
    row = take("expanded rows", DType::i32, {b.expanded});
    share = take("expanded shares", DType::f32, {b.expanded});
    place = take("places of pairs", DType::i32, {b.received, c.K});
    x = take("expert rows", T, {b.expanded, c.C});
    gu = take("expert gate_up", T, {b.expanded, 2 * c.Fe});
    h = take("expert swiglu", T, {b.expanded, c.Fe});
    if (!backward) return;
    weights = take("router weights", DType::f32, {b.tokens, c.K});
    dweights = take("router dweights", DType::f32, {b.tokens, c.K});
    dlogits = take("router dlogits", T, {b.tokens, c.E});
    dh2 = take("dh2", T, {b.tokens, c.C});
    dy = take("expert gradients", T, {b.expanded, c.C});
    dshare = take("expert dshares", DType::f32, {b.expanded});
  }
  Scope scope;
  Tensor rstd, h2, logits;   // of a tile's tokens
  Tensor token;              // of its sent rows
  Tensor row, share, place;  // of its received and expanded rows
  Tensor x, gu, h;           // expanded
  Tensor weights, dweights, dlogits, dh2, dy, dshare;
};

/// The matrix products of the layer's experts.
struct Moe::Products {
  Products(Work& work, const ExpertsView& w, std::int64_t rows, const ExpertsView& g = {})
      : gate_up(work, w.gu, work.options.lora.scale_of(Target::experts_gate_up), rows, g.gu),
        down(work, w.d, work.options.lora.scale_of(Target::experts_down), rows, g.d) {}
  GroupedProjection gate_up, down;
};

Moe::Moe(Work& work, std::int64_t layer) : work_(work), l_(layer) {
  const LoraConfig& lora = work.options.lora;
  if (!work.config.has_experts(layer)) return;
  units_ = expert_units(work.config, lora, layer);
  make_expert_adapters_unit(work.config, lora, layer, adapters_);
}

void Moe::prefetch() {
  for (const int unit : units_) work_.state.prefetch(unit);
}

ExpertsView Moe::use_weights() {
  ExpertsView view = view_experts(work_.state.use(units_.front()));
  if (units_.size() > 1) view_expert_adapters(work_.state.use(units_.back()), adapters_, view);
  return view;
}

ExpertsView Moe::open_gradients() {
  ExpertsView view = view_experts(work_.state.open_gradient(units_.front()));
  if (units_.size() > 1) view_expert_adapters(work_.state.open_gradient(units_.back()), adapters_, view);
  return view;
}

void Moe::drop_weights() {
  for (const int unit : units_) work_.state.drop(unit);
}

Tensor Moe::norm2(const LayerView& w, const Tensor& x1, const Room& room) {
  const std::int64_t n = x1.shape[0];
  const Tensor h2 = room.h2.rows(0, n);
  work_.ops.rmsnorm_fwd(
      Lane::compute,
      {.x = x1, .w = w.norm2, .y = h2, .rstd = room.rstd.rows(0, n), .eps = work_.config.norm_eps});
  return h2;
}

/// Of rows of x1, whose norm is left in room.h2; `call` says where ids, weights and counts go.
void Moe::route(const LayerView& w, const Tensor& x1, const Tensor& valid, const Room& room, RouteFwd call) {
  const Tensor h2 = norm2(w, x1, room);
  call.logits = room.logits.rows(0, x1.shape[0]);
  call.valid = valid;
  call.normalize = work_.config.normalize_topk;
  work_.ops.matmul(Lane::compute, {.a = h2, .b = w.router, .c = call.logits, .trans_b = true});
  work_.ops.route_fwd(Lane::compute, call);
}

void Moe::pack(int i, const ExpertTile& t, const ExpertTravel& travel, const Room& room, const Tensor& ids,
               const Tensor& weights, const Tensor& dy) {
  const ExpertRows home = travel.home(i, t);
  const Tensor token = room.token.rows(0, t.sent);
  work_.ops.dispatch_index(Lane::compute, {.ids = ids,
                                           .weights = weights,
                                           .token = token,
                                           .slots = home.slots,
                                           .shares = home.shares,
                                           .place = travel.place(i, t),
                                           .experts = work_.experts->shape().here()});
  work_.ops.gather_rows(Lane::compute, {.x = room.h2.rows(0, t.tokens), .index = token, .y = home.x});
  if (dy) work_.ops.gather_rows(Lane::compute, {.x = dy, .index = token, .y = home.dy});
}

void Moe::forward(const RowInputs& row, const LayerView& w, const Tensor& x1, const Tensor& y, bool training,
                  bool keep) {
  const ModelConfig& c = work_.config;
  ExpertGroup& group = *work_.experts;
  const ExpertBuffers buffers = group.buffers(row.tokens);
  const Tensor ids = work_.arena.take(training ? Region::saved : Region::workspace, "experts", DType::i32,
                                      {row.tokens, c.K});
  {
    Scope scope(work_.arena);
    const Tensor weights = scope.take("router weights", DType::f32, {row.tokens, c.K});
    const Room room(work_, buffers, false);
    for (std::int64_t t = 0; t < row.tokens; t += buffers.tokens) {
      const std::int64_t n = std::min(buffers.tokens, row.tokens - t);
      RouteFwd call{.logits = {}, .valid = {}, .ids = ids.rows(t, n), .weights = weights.rows(t, n)};
      if (training) {
        call.picked = work_.router->picked(l_);
        call.probability = work_.router->probability();
      }
      route(w, x1.rows(t, n), row.valid.rows(t, n), room, call);
    }
    tiles_ = group.tiles(ids);

    Products products(work_, use_weights(), buffers.expanded);
    ExpertTravel travel(group, buffers, c.C, work_.options.compute, false);
    travel.run(
        tiles_,
        [&](int i, const ExpertTile& t) {
          norm2(w, x1.rows(t.from, t.tokens), room);
          pack(i, t, travel, room, ids.rows(t.from, t.tokens), weights.rows(t.from, t.tokens), {});
          travel.send(i, t);
        },
        [&](int i, const ExpertTile& t) {
          compute_forward(t, travel.away(i, t), products, room);
          travel.send_back(i, t);
        },
        [&](int i, const ExpertTile& t) {
          const ExpertRows home = travel.returned(i, t);
          work_.ops.combine_rows(Lane::compute, {.x = home.x,
                                                 .index = travel.place(i, t),
                                                 .add = x1.rows(t.from, t.tokens),
                                                 .y = y.rows(t.from, t.tokens)});
        });
    if (!keep) drop_weights();
  }
  if (training)
    work_.store.save(l_, Saved::experts, ids);
  else
    work_.give(ids);
}

void Moe::compute_forward(const ExpertTile& t, const ExpertRows& away, Products& products, const Room& room) {
  Ops& ops = work_.ops;
  const std::int64_t P = t.expanded();
  const Tensor row = room.row.rows(0, P), place = room.place.rows(0, t.received);
  const Tensor x = room.x.rows(0, P), gu = room.gu.rows(0, P), h = room.h.rows(0, P);
  ops.expert_index(Lane::compute, {.slots = away.slots,
                                   .shares = away.shares,
                                   .row = row,
                                   .share = room.share.rows(0, P),
                                   .place = place,
                                   .experts = work_.experts->shape().here()});
  ops.gather_rows(Lane::compute, {.x = away.x, .index = row, .y = x});
  products.gate_up.forward(x, gu, t.offsets);
  ops.swiglu_fwd(Lane::compute, {.gu = gu, .h = h});
  const Tensor out = x;  // in place
  products.down.forward(h, out, t.offsets);
  ops.combine_rows(Lane::compute, {.x = out, .index = place, .weights = away.shares, .y = away.x});
}

void Moe::backward(const RowInputs& row, const LayerView& w, const LayerView& g, const Tensor& x1,
                   const Tensor& dx) {
  const ModelConfig& c = work_.config;
  ExpertGroup& group = *work_.experts;
  const ExpertBuffers buffers = group.buffers(row.tokens);
  const Tensor all = work_.store.get(l_, Saved::experts);
  const ExpertsView experts = use_weights(), gradients = open_gradients();
  {
    const Room room(work_, buffers, true);
    Products products(work_, experts, buffers.expanded, gradients);
    ExpertTravel travel(group, buffers, c.C, work_.options.compute, true);
    travel.run(
        tiles_,
        [&](int i, const ExpertTile& t) {
          const Tensor ids = all.rows(t.from, t.tokens), weights = room.weights.rows(0, t.tokens);
          route(w, x1.rows(t.from, t.tokens), row.valid.rows(t.from, t.tokens), room,
                {.logits = {}, .valid = {}, .ids = ids, .weights = weights, .reuse = true});
          pack(i, t, travel, room, ids, weights, dx.rows(t.from, t.tokens));
          travel.send(i, t);
        },
        [&](int i, const ExpertTile& t) {
          compute_backward(t, travel.away(i, t), products, room);
          travel.send_back(i, t);
        },
        [&](int i, const ExpertTile& t) {
          take_in_gradient(t, travel.returned(i, t), travel.place(i, t), w, g, x1.rows(t.from, t.tokens),
                           all.rows(t.from, t.tokens), dx.rows(t.from, t.tokens), room);
        });
  }
  work_.store.release(l_, Saved::experts);
  for (const int unit : units_) work_.state.reduce(unit);
  drop_weights();
}

/// dh = dy Wd carries no weight yet: what a weight multiplies is its own gradient too, so that the product
/// with Wd need not be computed again. The gradients of Wd and of its adapters have it in h.
void Moe::compute_backward(const ExpertTile& t, const ExpertRows& away, Products& products,
                           const Room& room) {
  Ops& ops = work_.ops;
  const std::int64_t P = t.expanded(), M = t.received, K = work_.config.K;
  const Tensor row = room.row.rows(0, P), place = room.place.rows(0, M), share = room.share.rows(0, P);
  const Tensor x = room.x.rows(0, P), gu = room.gu.rows(0, P), dh = room.h.rows(0, P);
  const Tensor dy = room.dy.rows(0, P), dshare = room.dshare.rows(0, P);
  ops.expert_index(Lane::compute, {.slots = away.slots,
                                   .shares = away.shares,
                                   .row = row,
                                   .share = share,
                                   .place = place,
                                   .experts = work_.experts->shape().here()});
  ops.gather_rows(Lane::compute, {.x = away.x, .index = row, .y = x});
  ops.gather_rows(Lane::compute, {.x = away.dy, .index = row, .y = dy});
  products.gate_up.forward(x, gu, t.offsets);
  products.down.backward(dy, t.offsets);
  products.down.input_gradient(dh);
  const Tensor h = products.down.wants_weight_gradients() ? dh : Tensor{}, dgu = gu;  // in place
  ops.expert_swiglu_bwd(Lane::compute,
                        {.gu = gu, .dh = dh, .share = share, .h = h, .dshare = dshare, .dgu = dgu});
  products.down.weight_gradients(h);
  products.gate_up.backward(dgu, t.offsets);
  products.gate_up.weight_gradients(x);
  const Tensor out = dy;  // in place
  products.gate_up.input_gradient(out);
  ops.combine_rows(Lane::compute, {.x = out, .index = place, .y = away.x});
  ops.gather_rows(
      Lane::compute,
      {.x = dshare.view({P, 1}), .index = place.view({M * K}), .y = away.shares.view({M * K, 1})});
}

void Moe::take_in_gradient(const ExpertTile& t, const ExpertRows& home, const Tensor& place,
                           const LayerView& w, const LayerView& g, const Tensor& x1, const Tensor& ids,
                           const Tensor& dx, const Room& room) {
  Ops& ops = work_.ops;
  const std::int64_t n = t.tokens;
  const Tensor dh2 = room.dh2.rows(0, n), dweights = room.dweights.rows(0, n);
  const Tensor logits = room.logits.rows(0, n), dlogits = room.dlogits.rows(0, n);
  ops.combine_rows(Lane::compute, {.x = home.x, .index = place, .y = dh2});
  ops.combine_rows(Lane::compute, {.x = home.shares, .index = place, .y = dweights});
  const Tensor h2 = norm2(w, x1, room);
  ops.matmul(Lane::compute, {.a = h2, .b = w.router, .c = logits, .trans_b = true});
  ops.route_bwd(Lane::compute, {.logits = logits,
                                .ids = ids,
                                .dweights = dweights,
                                .aux = work_.router->gradient(),
                                .dlogits = dlogits,
                                .normalize = work_.config.normalize_topk});
  if (g.router)
    ops.matmul(Lane::compute, {.a = dlogits, .b = h2, .c = g.router, .add = g.router, .trans_a = true});
  ops.matmul(Lane::compute, {.a = dlogits, .b = w.router, .c = dh2, .add = dh2});
  ops.rmsnorm_bwd(
      Lane::compute,
      {.dy = dh2, .x = x1, .w = w.norm2, .rstd = room.rstd.rows(0, n), .dres = dx, .dx = dx, .dw = g.norm2});
}

}  // namespace annulus
