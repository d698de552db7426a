#include "attention/attention.h"

#include <algorithm>
#include "attention/hopper.h"
#include "kernels/add.h"
#include "kernels/attention.h"
#include "kernels/cast.h"
#include "kernels/lse_merge.h"

namespace annulus::cuda {
namespace {

constexpr std::int64_t kAlign = 256;

std::int64_t padded(std::int64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

/// Hands out consecutive pieces of the workspace.
class Carver {
 public:
  explicit Carver(const Tensor& workspace)
      : at_(static_cast<char*>(workspace.data)), left_(workspace ? workspace.bytes() : 0) {}
  Tensor take(const char* name, DType dtype, std::initializer_list<std::int64_t> shape) {
    const Tensor t = make_tensor(name, at_, dtype, shape, Place::device);
    const std::int64_t bytes = padded(t.bytes());
    need(bytes <= left_, std::string("attention's workspace is too small for ") + name);
    at_ += bytes;
    left_ -= bytes;
    return t;
  }
  void* rest() const { return at_; }
  std::int64_t left() const { return left_; }

 private:
  char* at_;
  std::int64_t left_;
};

/// Columns [begin, begin + count) of (H, Tq).
Tensor columns(const Tensor& t, std::int64_t begin, std::int64_t count) {
  Tensor part = t;
  part.data = static_cast<char*>(t.data) + begin * bytes_of(t.dtype);
  part.row_stride = t.stride();
  part.shape[1] = count;
  return part;
}

bool aligned(const Tensor& t) {
  constexpr std::int64_t kBytes = 16;
  return reinterpret_cast<std::uintptr_t>(t.data) % kBytes == 0 &&
         t.stride() * bytes_of(t.dtype) % kBytes == 0;
}

/// The largest block that cuDNN could get in a call of this shape.
AttentionBlock largest(std::int64_t Tq, std::int64_t Tk, Cover cover, const AttentionTraits& traits) {
  const auto down = [&](std::int64_t n) {
    return std::min(n, cudnn_rows(traits)) / kCudnnMultiple * kCudnnMultiple;
  };
  AttentionBlock block;
  block.q_count = down(cover == Cover::causal ? std::min(Tq, Tk) : Tq);
  block.k_count = down(cover == Cover::causal ? std::min(Tq, Tk) : Tk);
  block.cover = cover;
  return block;
}

SdpaShape shape_of(const AttentionBlock& block, const AttentionTraits& t, double scale) {
  SdpaShape s;
  s.Sq = block.q_count, s.Sk = block.k_count;
  s.H = t.H, s.G = t.G, s.D = t.D;
  s.causal = block.cover == Cover::causal;
  s.backward = t.backward;
  s.scale = scale;
  return s;
}

/// Calls `cudnn(block)` and `hopper(block)` for each block that they take, and `own(span)` for each stretch
/// of others.
template <class Cudnn, class Hopper, class Own>
void by_engine(std::span<const AttentionBlock> blocks, const AttentionTraits& traits, Cudnn cudnn,
               Hopper hopper, Own own) {
  for (std::size_t i = 0; i < blocks.size();) {
    const Engine engine = choose(blocks[i], traits);
    if (engine != Engine::own) {
      if (engine == Engine::cudnn)
        cudnn(blocks[i]);
      else
        hopper(blocks[i]);
      ++i;
      continue;
    }
    std::size_t end = i + 1;
    while (end < blocks.size() && choose(blocks[end], traits) == Engine::own) ++end;
    own(blocks.subspan(i, end - i));
    i = end;
  }
}

}  // namespace

AttentionTraits AttentionEngine::traits_of(const AttentionFwd& a) const {
  return {.type = a.q.dtype,
          .H = a.q.shape[1],
          .G = a.k.shape[1],
          .D = a.q.shape[2],
          .row_stride = std::max({a.q.stride(), a.k.stride(), a.v.stride(), a.o.stride()}),
          .aligned = aligned(a.q) && aligned(a.k) && aligned(a.v) && (!a.o || aligned(a.o)),
          .hopper = hopper_,
          .only = only_};
}

AttentionTraits AttentionEngine::traits_of(const AttentionBwd& a) const {
  return {.type = a.q.dtype,
          .H = a.q.shape[1],
          .G = a.k.shape[1],
          .D = a.q.shape[2],
          .row_stride = std::max({a.q.stride(), a.k.stride(), a.v.stride(), a.o.stride(), a.d_o.stride(),
                                  a.dq.stride(), a.dk.stride(), a.dv.stride()}),
          .aligned = aligned(a.q) && aligned(a.k) && aligned(a.v) && aligned(a.o) && aligned(a.d_o) &&
                     aligned(a.dq) && aligned(a.dk) && aligned(a.dv),
          .backward = true,
          .deterministic = deterministic_,
          .hopper = hopper_,
          .only = only_};
}

void AttentionEngine::forward(Lane lane, const AttentionFwd& a) {
  const cudaStream_t stream = queue_.stream(lane);
  const AttentionTraits traits = traits_of(a);
  const bool own = std::all_of(a.blocks.begin(), a.blocks.end(),
                               [&](const AttentionBlock& b) { return choose(b, traits) == Engine::own; });
  if (own) return launch_attention_fwd(a, stream);

  const std::int64_t Tq = a.q.shape[0];
  const bool alone = a.blocks.size() == 1;
  const auto merge = [&](std::int64_t begin, std::int64_t count, const Tensor& o, const Tensor& lse,
                         bool begins, bool ends) {
    if (count == 0) return;
    launch_lse_merge({.o_blk = o,
                      .lse_blk = lse,
                      .acc = a.acc ? a.acc.rows(begin, count) : Tensor{},
                      .lse = columns(a.lse, begin, count),
                      .o = ends ? a.o.rows(begin, count) : Tensor{},
                      .begins = begins,
                      .ends = ends},
                     stream);
  };
  const auto by_cudnn = [&](const AttentionBlock& block) {
    const bool direct =
        alone && a.begins && a.ends && block.q_count == Tq && aligned(a.o) && a.lse.contiguous();
    Carver carver(a.workspace);
    const Tensor o =
        direct ? a.o : carver.take("o of a block", a.q.dtype, {block.q_count, traits.H, traits.D});
    const Tensor lse = direct ? a.lse : carver.take("lse of a block", DType::f32, {traits.H, block.q_count});
    const Tensor q = a.q.rows(block.q_at, block.q_count), k = a.k.rows(block.k_at, block.k_count),
                 v = a.v.rows(block.k_at, block.k_count);
    SdpaShape shape = shape_of(block, traits, a.scale);
    shape.q = q.stride(), shape.k = k.stride(), shape.v = v.stride(), shape.o = o.stride();
    cudnn_.run(shape, {.q = q.data, .k = k.data, .v = v.data, .o = o.data, .lse = lse.data}, carver.rest(),
               carver.left(), stream);
    if (!direct) merge(block.q_at, block.q_count, o, lse, alone && a.begins, alone && a.ends);
  };

  if (alone) {  // acc may be missing: begin and end happen in the block's own merge
    const AttentionBlock& block = a.blocks[0];
    if (choose(block, traits) == Engine::hopper)
      launch_hopper_fwd(a, block, a.begins, a.ends, stream);
    else
      by_cudnn(block);
    if (!a.begins && !a.ends) return;
    const std::int64_t end = block.q_at + block.q_count;
    merge(0, block.q_at, {}, {}, a.begins, a.ends);
    merge(end, Tq - end, {}, {}, a.begins, a.ends);
    return;
  }
  if (a.begins) merge(0, Tq, {}, {}, true, false);
  const auto by_hopper = [&](const AttentionBlock& block) {
    launch_hopper_fwd(a, block, false, false, stream);
  };
  by_engine(a.blocks, traits, by_cudnn, by_hopper, [&](std::span<const AttentionBlock> blocks) {
    AttentionFwd part = a;
    part.blocks = blocks;
    part.begins = part.ends = false;
    launch_attention_fwd(part, stream);
  });
  if (a.ends) merge(0, Tq, {}, {}, false, true);
}

void AttentionEngine::backward(Lane lane, const AttentionBwd& a) {
  const cudaStream_t stream = queue_.stream(lane);
  const AttentionTraits traits = traits_of(a);
  const bool direct = a.dq.dtype == a.q.dtype && a.q.dtype != DType::f32;
  need(!direct || a.blocks.size() == 1, "attention backward in T takes exactly one block");
  const auto by_cudnn = [&](const AttentionBlock& block) {
    Carver carver(a.workspace);
    const std::int64_t n = block.q_count, m = block.k_count;
    const Tensor dq = direct ? a.dq : carver.take("dq of a block", a.q.dtype, {n, traits.H, traits.D});
    const Tensor dk = direct ? a.dk : carver.take("dk of a block", a.q.dtype, {m, traits.G, traits.D});
    const Tensor dv = direct ? a.dv : carver.take("dv of a block", a.q.dtype, {m, traits.G, traits.D});
    Tensor lse = a.lse;
    if (n != a.q.shape[0] || !lse.contiguous()) {
      lse = carver.take("lse of a block", DType::f32, {traits.H, n});
      queue_.copy(lane, columns(a.lse, block.q_at, n), lse);
    }
    const Tensor q = a.q.rows(block.q_at, n), k = a.k.rows(block.k_at, m), v = a.v.rows(block.k_at, m),
                 o = a.o.rows(block.q_at, n), d_o = a.d_o.rows(block.q_at, n);
    SdpaShape shape = shape_of(block, traits, a.scale);
    shape.q = q.stride(), shape.k = k.stride(), shape.v = v.stride(), shape.o = o.stride();
    shape.d_o = d_o.stride(), shape.dq = dq.stride(), shape.dk = dk.stride(), shape.dv = dv.stride();
    cudnn_.run(shape,
               {.q = q.data,
                .k = k.data,
                .v = v.data,
                .o = o.data,
                .lse = lse.data,
                .d_o = d_o.data,
                .dq = dq.data,
                .dk = dk.data,
                .dv = dv.data},
               carver.rest(), carver.left(), stream);
    if (direct) return;
    launch_accumulate(dq, a.dq.rows(block.q_at, n), stream);
    launch_accumulate(dk, a.dk.rows(block.k_at, m), stream);
    launch_accumulate(dv, a.dv.rows(block.k_at, m), stream);
  };
  const auto by_hopper = [&](const AttentionBlock& block) { backward_hopper(lane, a, block); };
  by_engine(a.blocks, traits, by_cudnn, by_hopper, [&](std::span<const AttentionBlock> blocks) {
    AttentionBwd part = a;
    part.blocks = blocks;
    launch_attention_bwd(part, stream);
  });
}

void AttentionEngine::backward_hopper(Lane lane, const AttentionBwd& a, const AttentionBlock& block) {
  const cudaStream_t stream = queue_.stream(lane);
  const std::int64_t Tq = a.q.shape[0], H = a.q.shape[1], D = a.q.shape[2];
  Carver carver(a.workspace);
  const Tensor turns =
      carver.take("turns of a block", DType::u8, {hopper_bwd_turn_bytes(block.q_count, H, D)});
  int* const counters = static_cast<int*>(turns.data);
  if (a.dq.dtype == DType::f32) return launch_hopper_bwd(a, block, a.dq, counters, stream);
  const Tensor dq = carver.take("dq of a block", DType::f32, {Tq, H, D});
  queue_.zero(lane, dq);
  launch_hopper_bwd(a, block, dq, counters, stream);
  launch_narrow_rows(dq, a.dq, stream);
}

std::int64_t AttentionEngine::bytes(const Tensor& q, const Tensor& k, double scale,
                                    const AttentionTraits& traits, std::int64_t scratch) {
  std::int64_t library = -1;
  for (const Cover cover : {Cover::full, Cover::causal}) {
    const AttentionBlock block = largest(q.shape[0], k.shape[0], cover, traits);
    if (!can(Engine::cudnn, block, traits) || choose(block, traits) != Engine::cudnn) continue;
    SdpaShape shape = shape_of(block, traits, scale);
    shape.q = q.stride(), shape.k = shape.v = k.stride();
    shape.o = shape.d_o = shape.dq = traits.H * traits.D;
    shape.dk = shape.dv = traits.G * traits.D;
    library = std::max(library, cudnn_.workspace_bytes(shape));
  }
  return library < 0 ? 0 : scratch + padded(library);  // our own engine works in place
}

std::int64_t AttentionEngine::forward_bytes(const AttentionFwd& a) {
  AttentionTraits traits = traits_of(a);
  traits.aligned = true;  // the addresses are not known yet
  const std::int64_t lse = padded(traits.H * a.q.shape[0] * bytes_of(DType::f32));
  return bytes(a.q, a.k, a.scale, traits, padded(a.q.bytes()) + lse);
}

std::int64_t AttentionEngine::backward_bytes(const AttentionBwd& a) {
  AttentionTraits traits = traits_of(a);
  traits.aligned = true;
  const bool direct = a.dq.dtype == a.q.dtype;
  const std::int64_t Tq = a.q.shape[0];
  const std::int64_t lse = padded(traits.H * Tq * bytes_of(DType::f32));
  const std::int64_t gradients = direct ? 0 : padded(a.q.bytes()) + 2 * padded(a.k.bytes());
  const std::int64_t library = bytes(a.q, a.k, a.scale, traits, gradients + lse);
  const AttentionBlock any{.q_count = Tq, .k_count = a.k.shape[0], .cover = Cover::partial};
  if (!can(Engine::hopper, any, traits) || traits.only.value_or(Engine::hopper) != Engine::hopper)
    return library;
  const std::int64_t turns = padded(hopper_bwd_turn_bytes(Tq, traits.H, traits.D));
  return std::max(library, turns + (direct ? padded(a.q.size() * bytes_of(DType::f32)) : 0));
}

}  // namespace annulus::cuda
