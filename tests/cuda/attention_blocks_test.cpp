// Calls whose blocks go to different engines, against the CPU's answer in f32 to the same inputs. Blocks are
// large enough for cuDNN; the operations' own tests have the small and odd ones.
#include <cmath>
#include "support/backends.h"
#include "support/judge.h"

using namespace annulus;
using namespace annulus::test;

namespace {

constexpr std::int64_t H = 4, G = 2;
constexpr double kBf16Error = 1e-2;  // of a whole tensor, in the Euclidean norm: a few roundings to bf16

struct Case {
  const char* why;
  std::int64_t D;
  std::vector<AttentionBlock> blocks;
  std::int64_t Tq, Tk;
  std::vector<std::int64_t> q_positions;  // of all rows
  std::int64_t document;                  // start of the document that the last rows belong to
};

std::vector<std::int64_t> positions(std::initializer_list<std::pair<std::int64_t, std::int64_t>> runs) {
  std::vector<std::int64_t> all;
  for (auto [from, count] : runs)
    for (std::int64_t i = 0; i < count; ++i) all.push_back(from + i);
  return all;
}

AttentionBlock block(std::int64_t q_at, std::int64_t q, std::int64_t q_position, std::int64_t k_at,
                     std::int64_t k, std::int64_t k_position, Cover cover) {
  return {q_at, q, q_position, k_at, k, k_position, cover};
}

/// Two runs of one rank of a ring: 512 rows from position 0, 640 rows from position 1024; keys are the same.
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"one causal block",
       128,
       {block(0, 640, 0, 0, 640, 0, Cover::causal)},
       640,
       640,
       positions({{0, 640}}),
       0},
      {"one full block, D 64",
       64,
       {block(0, 512, 2000, 0, 768, 100, Cover::full)},
       512,
       768,
       positions({{2000, 512}}),
       0},
      {"one block in the middle of the rows",
       128,
       {block(32, 512, 1032, 64, 640, 64, Cover::full)},
       600,
       704,
       positions({{1000, 600}}),
       0},
      {"two runs, one document",
       128,
       {block(0, 512, 0, 0, 512, 0, Cover::causal), block(512, 640, 1024, 0, 512, 0, Cover::full),
        block(512, 640, 1024, 512, 640, 1024, Cover::causal)},
       1152,
       1152,
       positions({{0, 512}, {1024, 640}}),
       0},
      {"two runs, a document from 300 on",
       64,
       {block(0, 512, 0, 0, 512, 0, Cover::partial), block(512, 640, 1024, 0, 512, 0, Cover::partial),
        block(512, 640, 1024, 512, 640, 1024, Cover::causal)},
       1152,
       1152,
       positions({{0, 512}, {1024, 640}}),
       300},
  };
  return all;
}

struct Inputs {
  Floats q, k, v, d_o;
  std::vector<std::int64_t> first;
};

Inputs inputs(const Case& c) {
  Inputs in{random_values(DType::bf16, 1, c.Tq * H * c.D),
            random_values(DType::bf16, 2, c.Tk * G * c.D),
            random_values(DType::bf16, 3, c.Tk * G * c.D),
            random_values(DType::bf16, 4, c.Tq * H * c.D),
            {}};
  for (std::int64_t p : c.q_positions) in.first.push_back(p >= c.document ? c.document : 0);
  return in;
}

/// o, lse, dq, dk, dv; in f32 or bf16. `calls`: the blocks are handed over in so many calls.
std::vector<Floats> attend(Backend& backend, const Case& c, DType T, bool several_calls) {
  const Inputs in = inputs(c);
  Device device(backend);
  Queue& queue = backend.queue();
  AttentionFwd f;
  f.q = device.in("q", T, {c.Tq, H, c.D}, in.q, 32);
  f.k = device.in("k", T, {c.Tk, G, c.D}, in.k, 64);
  f.v = device.in("v", T, {c.Tk, G, c.D}, in.v);
  f.first = device.in("first", {c.Tq}, in.first);
  f.lse = device.out("lse", DType::f32, {H, c.Tq});
  f.o = device.out("o", T, {c.Tq, H, c.D}, 32);
  f.scale = 1.0 / std::sqrt(double(c.D));
  if (several_calls || c.blocks.size() > 1) f.acc = device.out("acc", DType::f32, {c.Tq, H, c.D});
  f.workspace = device.bytes("workspace", backend.ops().attention_fwd_bytes(f));
  const std::span<const AttentionBlock> blocks(c.blocks);
  for (std::size_t i = 0; i < blocks.size();) {
    const std::size_t n = several_calls ? 1 : blocks.size();
    f.blocks = blocks.subspan(i, n);
    f.begins = i == 0;
    f.ends = (i += n) == blocks.size();
    backend.ops().attention_fwd(Lane::compute, f);
  }
  AttentionBwd b;
  b.q = f.q, b.k = f.k, b.v = f.v, b.first = f.first, b.o = f.o, b.lse = f.lse, b.scale = f.scale;
  b.d_o = device.in("d_o", T, {c.Tq, H, c.D}, in.d_o, 96);
  b.delta = device.out("delta", DType::f32, {H, c.Tq});
  backend.ops().attention_delta(Lane::compute, {.o = b.o, .d_o = b.d_o, .delta = b.delta});
  const AttentionBlock& only = c.blocks[0];
  const bool direct = !several_calls && c.blocks.size() == 1 && only.q_count == c.Tq && only.k_count == c.Tk;
  const DType type = direct ? T : DType::f32;
  b.dq = device.out("dq", type, {c.Tq, H, c.D});
  b.dk = device.out("dk", type, {c.Tk, G, c.D});
  b.dv = device.out("dv", type, {c.Tk, G, c.D});
  if (type == DType::f32)
    for (const Tensor& t : {b.dq, b.dk, b.dv}) queue.zero(Lane::compute, t);
  b.blocks = blocks;
  b.workspace = device.bytes("workspace", backend.ops().attention_bwd_bytes(b));
  backend.ops().attention_bwd(Lane::compute, b);
  queue.sync(queue.mark(Lane::compute));
  std::vector<Floats> results;
  for (const Tensor& t : {f.o, f.lse, b.dq, b.dk, b.dv}) results.push_back(device.floats(t));
  BOOST_TEST(device.intact(), c.why);
  return results;
}

/// ||a - b|| / ||b||; equal infinities differ by nothing.
double error(const Floats& a, const Floats& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isinf(b[i]) && a[i] == b[i]) continue;
    difference += std::pow(double(a[i]) - b[i], 2);
    size += std::pow(double(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda)

BOOST_AUTO_TEST_CASE(engines_join_into_one_attention,
                     *boost::unit_test::label("slow") * boost::unit_test::precondition(needs_gpu)) {
  const char* names[] = {"o", "lse", "dq", "dk", "dv"};
  for (const Case& c : cases()) {
    const std::vector<Floats> exact = attend(cpu(), c, DType::f32, false);
    for (bool several_calls : {false, true}) {
      const std::vector<Floats> got = attend(*test::cuda(), c, DType::bf16, several_calls);
      for (std::size_t i = 0; i < exact.size(); ++i) {
        const double e = error(got[i], exact[i]);
        BOOST_TEST_MESSAGE(c.why << ", " << names[i] << (several_calls ? ", in several calls: " : ": ") << e);
        BOOST_TEST(e <= kBf16Error, c.why << ": " << names[i] << " errs by " << e);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
