#include "parallel/ring_attention.h"
#include <algorithm>
#include "parallel/ring_travel.h"

namespace annulus {
namespace {

/// Blocks of each ring step of a member; empty where it sees nothing.
std::vector<std::vector<AttentionBlock>> visible(const RowMap& map, std::int64_t window, const Route& route) {
  std::vector<std::vector<AttentionBlock>> steps;
  for (int s = 0; s < map.ring(); ++s) steps.push_back(map.blocks(route.up(0), route.owner(s), window));
  return steps;
}

/// Scratch of any call in a sequence, so that no row needs more than another.
std::int64_t forward_scratch(const Ops& ops, const Tensor& q, const KeyValue& kv) {
  AttentionFwd call;
  call.q = q;
  call.k = kv.k;
  call.v = kv.v;
  std::int64_t bytes = 0;
  for (const bool begins : {false, true})
    for (const bool ends : {false, true}) {
      call.begins = begins;
      call.ends = ends;
      bytes = std::max(bytes, ops.attention_fwd_bytes(call));
    }
  return bytes;
}

std::int64_t backward_scratch(const Ops& ops, const Tensor& q, const KeyValue& kv, const Tensor& dq) {
  AttentionBwd call;
  call.q = q;
  call.k = kv.k;
  call.v = kv.v;
  call.dq = dq;
  return ops.attention_bwd_bytes(call);
}

}  // namespace

RingAttention::RingAttention(Backend& backend, Arena& arena, Comm& ring, AttentionShape shape, DType T)
    : backend_(backend), arena_(arena), ring_(ring), shape_(shape), type_(T) {
  need(shape.G >= 1 && shape.H % shape.G == 0, "ring attention: key/value heads do not divide query heads");
  need(shape.groups >= 1 && shape.G % shape.groups == 0,
       "ring attention: attention groups do not divide key/value heads");
  need(shape.passage >= 1, "ring attention: sums move by one element at least");
}

DType RingAttention::grad_dtype() const {
  return ring_.size() == 1 ? type_ : DType::f32;
}

void RingAttention::forward(const RowMap& map, std::int64_t window, const Tensor& first, const Tensor& q,
                            const Tensor& kv, const Tensor& o, const Tensor& lse) {
  const std::int64_t Tm = map.member_tokens(), H = shape_.H, G = shape_.G, D = shape_.D;
  const std::int64_t heads = H / shape_.groups, key_heads = G / shape_.groups;  // of a group
  first.expect({Tm}), q.expect({Tm, H, D}), kv.expect({2, Tm, G, D}), o.expect({Tm, H, D}),
      lse.expect({H, Tm});
  need(map.ring() == ring_.size(), "ring attention: the map is of another ring");
  const Route route(map, window, ring_.rank());
  const auto steps = visible(map, window, route);
  const auto last = std::find_if(steps.rbegin(), steps.rend(), [](const auto& b) { return !b.empty(); });
  const auto last_step = static_cast<int>(steps.rend() - last) - 1;

  Scope scope(arena_);
  Tensor acc;  // one member has one block, which needs no running sum
  if (ring_.size() > 1) acc = scope.take("attention sums", DType::f32, {Tm, heads, D});
  const Tensor scratch =
      scope.take("attention scratch", DType::u8,
                 {forward_scratch(backend_.ops(), q.heads(0, heads), heads_of(kv, 0, key_heads))});
  TravellingKeys keys(arena_, ring_, Tm, key_heads, D, shape_.groups > 1, type_);
  for (std::int64_t g = 0; g < shape_.groups; ++g) {
    keys.start(route, kv, g * key_heads, key_heads);
    for (int s = 0; s < ring_.size(); ++s) {
      keys.shift(route, s);
      const auto& blocks = steps[static_cast<std::size_t>(s)];
      if (blocks.empty()) continue;
      const KeyValue now = keys.at(s);
      backend_.ops().attention_fwd(Lane::compute, {.q = q.heads(g * heads, heads),
                                                   .k = now.k,
                                                   .v = now.v,
                                                   .first = first,
                                                   .blocks = blocks,
                                                   .acc = acc,
                                                   .lse = lse.rows(g * heads, heads),
                                                   .o = o.heads(g * heads, heads),
                                                   .begins = s == 0,
                                                   .ends = s == last_step,
                                                   .scale = shape_.scale,
                                                   .workspace = scratch});
      keys.used(s);
    }
  }
  keys.finish();
}

void RingAttention::backward(const RowMap& map, std::int64_t window, const Tensor& first, const Tensor& q,
                             const Tensor& kv, const Tensor& o, const Tensor& d_o, const Tensor& lse,
                             const Tensor& dq, const Tensor& dkv) {
  const std::int64_t Tm = map.member_tokens(), H = shape_.H, G = shape_.G, D = shape_.D;
  const std::int64_t heads = H / shape_.groups, key_heads = G / shape_.groups;
  first.expect({Tm}), q.expect({Tm, H, D}), kv.expect({2, Tm, G, D}), o.expect({Tm, H, D});
  d_o.expect({Tm, H, D}), lse.expect({H, Tm}), dq.expect({Tm, H, D}), dkv.expect({2, Tm, G, D});
  need(map.ring() == ring_.size(), "ring attention: the map is of another ring");
  const Route route(map, window, ring_.rank());
  const auto steps = visible(map, window, route);
  Queue& queue = backend_.queue();
  Ops& ops = backend_.ops();

  Scope scope(arena_);
  const Tensor delta = scope.take("attention delta", DType::f32, {H, Tm});
  ops.attention_delta(Lane::compute, {.o = o, .d_o = d_o, .delta = delta});
  if (grad_dtype() == DType::f32) {
    queue.zero(Lane::compute, dq);
    queue.zero(Lane::compute, dkv);
  }
  // A returning sum is added to contiguous memory: of one group of several that is a buffer of its own.
  const bool buffered = ring_.size() > 1 && shape_.groups > 1;
  Tensor buffer;
  if (buffered)
    buffer = scope.take("key gradients of a group", DType::f32, {2, Tm, key_heads, D}, Region::comm);
  const Tensor scratch =
      scope.take("attention scratch", DType::u8,
                 {backward_scratch(ops, q.heads(0, heads), heads_of(kv, 0, key_heads), dq.heads(0, heads))});
  TravellingKeys keys(arena_, ring_, Tm, key_heads, D, shape_.groups > 1, type_);
  TravellingSums sums(arena_, ring_, ops, Tm, key_heads, D, shape_.passage);
  for (std::int64_t g = 0; g < shape_.groups; ++g) {
    const auto attend = [&](int s, const KeyValue& d) {
      const auto& blocks = steps[static_cast<std::size_t>(s)];
      if (blocks.empty()) return;
      const KeyValue now = keys.at(s);
      ops.attention_bwd(Lane::compute, {.q = q.heads(g * heads, heads),
                                        .k = now.k,
                                        .v = now.v,
                                        .o = o.heads(g * heads, heads),
                                        .d_o = d_o.heads(g * heads, heads),
                                        .lse = lse.rows(g * heads, heads),
                                        .delta = delta.rows(g * heads, heads),
                                        .first = first,
                                        .blocks = blocks,
                                        .dq = dq.heads(g * heads, heads),
                                        .dk = d.k,
                                        .dv = d.v,
                                        .scale = shape_.scale,
                                        .workspace = scratch});
      keys.used(s);
    };
    const KeyValue d_own = heads_of(dkv, g * key_heads, key_heads);
    if (buffered) queue.zero(Lane::compute, buffer);
    keys.start(route, kv, g * key_heads, key_heads);
    sums.start(buffered ? buffer : dkv);
    keys.shift(route, 0);
    attend(0, buffered ? heads_of(buffer, 0, key_heads) : d_own);
    for (int s = 1; s < ring_.size(); ++s) {
      keys.shift(route, s);
      if (s > 1) sums.shift(route, s);
      if (!route.holds(s)) continue;
      attend(s, heads_of(sums.open(s), 0, key_heads));
      if (s > 1) sums.join(s);
    }
    if (ring_.size() > 1) sums.shift(route, ring_.size());
    if (!buffered) continue;
    queue.wait(Lane::compute, queue.mark(Lane::ring));
    const KeyValue summed = heads_of(buffer, 0, key_heads);
    queue.copy(Lane::compute, summed.k, d_own.k);
    queue.copy(Lane::compute, summed.v, d_own.v);
  }
  keys.finish();
  sums.finish();
}

}  // namespace annulus
