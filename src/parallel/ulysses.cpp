#include "parallel/ulysses.h"
#include <numeric>

namespace annulus {
namespace {

AttentionShape shape_of(AttentionShape whole, const HeadShare& share) {
  whole.H = share.H;
  whole.G = share.G;
  return whole;
}

/// Entry i of dimension 0 as a tensor of the other three.
Tensor entry(const Tensor& t, std::int64_t i) {
  return t.rows(i, 1).view({t.shape[1], t.shape[2], t.shape[3]});
}

}  // namespace

HeadShare share_heads(std::int64_t H, std::int64_t G, int ulysses) {
  need(ulysses >= 1 && G >= 1 && H % G == 0 && H % ulysses == 0, "heads: ranks do not divide query heads");
  const std::int64_t copies = std::lcm(G, std::int64_t{ulysses});  // divides H, as both do
  return {.H = H / ulysses, .G = copies / ulysses, .repeats = copies / G};
}

ContextAttention::ContextAttention(Backend& backend, Arena& arena, Comm& ring, Comm& ulysses,
                                   AttentionShape shape, DType T)
    : backend_(backend),
      arena_(arena),
      ulysses_(ulysses),
      shape_(shape),
      share_(share_heads(shape.H, shape.G, ulysses.size())),
      ring_(backend, arena, ring, shape_of(shape, share_), T) {}

void ContextAttention::exchange(std::span<const Send> sends, std::span<const Receive> receives) {
  Queue& queue = backend_.queue();
  queue.wait(Lane::ring, queue.mark(Lane::compute));
  ulysses_.exchange(Lane::ring, sends, receives);
  queue.wait(Lane::compute, queue.mark(Lane::ring));
}

Tensor ContextAttention::to_heads(const Tensor& x) {
  if (whole()) return x;
  const int U = ulysses_.size(), me = ulysses_.rank();
  const std::int64_t Tl = x.shape[0], H = share_.H, D = shape_.D;
  x.expect({Tl, shape_.H, D});
  const Tensor all = arena_.take(Region::workspace, x.name, x.dtype, {U * Tl, H, D});
  Scope scope(arena_);
  const Tensor packed = scope.take("heads that leave", x.dtype, {U - 1, Tl, H, D}, Region::comm);
  std::vector<Send> sends;
  std::vector<Receive> receives;
  for (int u = 0; u < U; ++u) {
    const Tensor place = all.rows(u * Tl, Tl);
    if (u == me) {
      copy(x.heads(u * H, H), place);
      continue;
    }
    sends.push_back({u, entry(packed, slot(u))});
    copy(x.heads(u * H, H), sends.back().data);
    receives.push_back({u, place});
  }
  exchange(sends, receives);
  return all;
}

Tensor ContextAttention::pair_to_heads(const Tensor& kv) {
  if (whole()) return kv;
  const int U = ulysses_.size(), me = ulysses_.rank();
  const std::int64_t Tl = kv.shape[1], G = share_.G, D = shape_.D;
  kv.expect({2, Tl, shape_.G, D});
  const Tensor all = arena_.take(Region::workspace, kv.name, kv.dtype, {2, U * Tl, G, D});
  Scope scope(arena_);
  const Tensor packed = scope.take("heads that leave", kv.dtype, {2 * (U - 1), Tl, G, D}, Region::comm);
  std::vector<Send> sends;
  std::vector<Receive> receives;
  for (int u = 0; u < U; ++u)
    for (std::int64_t half = 0; half < 2; ++half) {
      const Tensor place = entry(all, half).rows(u * Tl, Tl);
      const Tensor to = u == me ? place : entry(packed, 2 * slot(u) + half);
      if (share_.repeats == 1)
        copy(entry(kv, half).heads(u * G, G), to);
      else
        for (std::int64_t g = 0; g < G; ++g)
          copy(entry(kv, half).heads((u * G + g) / share_.repeats, 1), to.heads(g, 1));
      if (u == me) continue;
      sends.push_back({u, to});
      receives.push_back({u, place});
    }
  exchange(sends, receives);
  return all;
}

Tensor ContextAttention::to_tokens(Tensor x, Region region) {
  if (whole()) return x;
  const int U = ulysses_.size(), me = ulysses_.rank();
  const std::int64_t Tl = x.shape[0] / U, H = share_.H, D = shape_.D;
  x.expect({U * Tl, H, D});
  const Tensor mine = arena_.take(region, x.name, x.dtype, {Tl, shape_.H, D});
  {
    Scope scope(arena_);
    const Tensor landing = scope.take("heads that arrive", x.dtype, {U - 1, Tl, H, D}, Region::comm);
    std::vector<Send> sends;
    std::vector<Receive> receives;
    for (int u = 0; u < U; ++u) {
      if (u == me) continue;
      sends.push_back({u, x.rows(u * Tl, Tl)});
      receives.push_back({u, entry(landing, slot(u))});
    }
    exchange(sends, receives);
    for (int u = 0; u < U; ++u)
      copy(u == me ? x.rows(u * Tl, Tl) : entry(landing, slot(u)), mine.heads(u * H, H));
  }
  arena_.give(x);
  return mine;
}

Tensor ContextAttention::pair_to_tokens(Tensor dkv) {
  if (whole()) return dkv;
  const int U = ulysses_.size(), me = ulysses_.rank();
  const std::int64_t Tl = dkv.shape[1] / U, G = share_.G, D = shape_.D;
  dkv.expect({2, U * Tl, G, D});
  const Tensor mine = arena_.take(Region::workspace, dkv.name, dkv.dtype, {2, Tl, shape_.G, D});
  {
    Scope scope(arena_);
    const Tensor landing = scope.take("heads that arrive", dkv.dtype, {2 * (U - 1), Tl, G, D}, Region::comm);
    std::vector<Send> sends;
    std::vector<Receive> receives;
    for (int u = 0; u < U; ++u)
      for (std::int64_t half = 0; half < 2 && u != me; ++half) {
        sends.push_back({u, entry(dkv, half).rows(u * Tl, Tl)});
        receives.push_back({u, entry(landing, 2 * slot(u) + half)});
      }
    exchange(sends, receives);
    const auto from = [&](int u, std::int64_t half) {
      return u == me ? entry(dkv, half).rows(u * Tl, Tl) : entry(landing, 2 * slot(u) + half);
    };
    for (std::int64_t half = 0; half < 2; ++half) {
      if (share_.repeats == 1) {
        for (int u = 0; u < U; ++u) copy(from(u, half), entry(mine, half).heads(u * G, G));
        continue;
      }
      sum_copies([&](std::int64_t head) { return from(static_cast<int>(head / G), half).heads(head % G, 1); },
                 entry(mine, half));
    }
  }
  arena_.give(dkv);
  return mine;
}

void ContextAttention::sum_copies(const std::function<Tensor(std::int64_t)>& part, const Tensor& d) {
  const std::int64_t Tl = d.shape[0], D = shape_.D, n = Tl * D;
  Ops& ops = backend_.ops();
  Scope scope(arena_);
  const Tensor head = scope.take("a head's gradient", d.dtype, {Tl, 1, D});
  const Tensor sum = scope.take("sum of a head's copies", DType::f32, {n});
  for (std::int64_t g = 0; g < shape_.G; ++g) {
    backend_.queue().zero(Lane::compute, sum);
    for (std::int64_t c = 0; c < share_.repeats; ++c) {
      copy(part(g * share_.repeats + c), head);
      ops.add(Lane::compute, {.x = head.span(0, n), .y = sum});
    }
    ops.cast(Lane::compute, {.from = sum, .to = head.span(0, n)});
    copy(head, d.heads(g, 1));
  }
}

}  // namespace annulus
