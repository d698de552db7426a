// What backends share beside the operations: queues, shape checks, and the dry one that computes nothing.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include "ops/cpu/exp.h"
#include "support/backends.h"
#include "support/device.h"

namespace annulus::test {
namespace {

Tensor dry(Backend& b, const char* name, DType type, Shape shape) {
  Tensor t = make_tensor(name, nullptr, type, shape, b.memory().place());
  t.data = b.memory().allocate(t.bytes(), name);
  return t;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(ops)

BOOST_AUTO_TEST_CASE(queue_copies_and_zeroes_strided_rows) {
  const Floats values{1, 2, 3, 4, 5, 6};
  for (const auto& [name, backend] : backends()) {
    Queue& queue = backend->queue();
    for (const std::int64_t from_gap : {0, 3})
      for (const std::int64_t to_gap : {0, 2}) {
        Device d(*backend);
        const Tensor from = d.in("from", DType::f32, {3, 2}, values, from_gap);
        const Tensor to = d.out("to", DType::f32, {3, 2}, to_gap);
        queue.copy(Lane::compute, from, to);
        BOOST_TEST(d.floats(to) == values, boost::test_tools::per_element());
        queue.zero(Lane::compute, to);
        BOOST_TEST(d.floats(to) == Floats(6, 0.f), boost::test_tools::per_element());
        BOOST_TEST(d.intact(), name);
        queue.sync(queue.mark(Lane::compute));
      }
    Device d(*backend);
    const Tensor none = d.out("none", DType::f32, {0, 2}), two = d.out("two", DType::f32, {1, 2});
    queue.copy(Lane::compute, none, none);
    queue.zero(Lane::compute, none);
    BOOST_CHECK_THROW(queue.copy(Lane::compute, two, d.out("one", DType::f32, {2, 1})), Error);
    BOOST_CHECK_THROW(queue.copy(Lane::compute, two, d.out("narrow", DType::bf16, {1, 2})), Error);
    BOOST_TEST(d.intact(), name);
  }
}

BOOST_AUTO_TEST_CASE(cpu_backend_says_what_it_runs_on) {
  const auto backend = make_cpu_backend(1);
  BOOST_TEST(backend->describe().starts_with("cpu: "));
  BOOST_TEST(backend->describe().ends_with(", 1 thread"));
  BOOST_TEST(backend->ops().kind() == std::string("cpu"));
  BOOST_TEST((backend->memory().place() == Place::host));
  auto group = make_self_comm(backend->queue());
  Comm* const same = group.get();
  BOOST_TEST(backend->device_comm(std::move(group)).get() == same);
  BOOST_CHECK_THROW(make_cpu_backend(0), Error);
}

// A dry call passes where the real one would compute, and fails where the real one would.
BOOST_AUTO_TEST_CASE(dry_backend_checks_and_touches_nothing) {
  const auto backend = make_dry_backend(Place::device, &cpu().ops());
  BOOST_TEST((backend->memory().place() == Place::device));
  BOOST_TEST((backend->pinned().place() == Place::host));
  const Tensor x = dry(*backend, "x", DType::bf16, {1 << 20, 4096}),
               w = dry(*backend, "w", DType::bf16, {4096});
  const Tensor rstd = dry(*backend, "rstd", DType::f32, {1 << 20});
  backend->queue().zero(Lane::compute, x);
  backend->queue().copy(Lane::out, x, x);
  backend->ops().rmsnorm_fwd(Lane::compute, {.x = x, .w = w, .y = x, .rstd = rstd});
  BOOST_CHECK_THROW(backend->ops().rmsnorm_fwd(Lane::compute, {.x = x, .w = w, .y = x, .rstd = w}), Error);
  BOOST_CHECK_THROW(backend->queue().copy(Lane::out, x, w), Error);

  AttentionFwd a;
  a.q = dry(*backend, "q", DType::bf16, {100, 4, 64});
  a.k = a.v = dry(*backend, "k", DType::bf16, {100, 2, 64});
  BOOST_TEST(backend->ops().attention_fwd_bytes(a) == cpu().ops().attention_fwd_bytes(a));
  AttentionBwd b;
  b.q = a.q;
  b.k = b.v = a.k;
  b.dq = a.q;
  BOOST_TEST(backend->ops().attention_bwd_bytes(b) == cpu().ops().attention_bwd_bytes(b));
  const auto nobody = make_dry_backend(Place::host, nullptr);
  BOOST_TEST(nobody->ops().attention_fwd_bytes(a) == 0);
  BOOST_TEST(nobody->ops().attention_bwd_bytes(b) == 0);
}

BOOST_AUTO_TEST_CASE(operations_refuse_what_their_description_excludes) {
  for (const auto& [name, backend] : backends()) {
    Device d(*backend);
    const auto refuses = [&](auto&& call) { BOOST_CHECK_THROW(call(d.ops()), Error); };
    const Tensor m23 = d.out("m23", DType::f32, {2, 3}), m32 = d.out("m32", DType::f32, {3, 2});
    const Tensor m22 = d.out("m22", DType::f32, {2, 2}), low = d.out("low", DType::bf16, {2, 2});
    const Tensor wide = d.out("wide", DType::f32, {2, 3}, 4), v2 = d.out("v2", DType::f32, {2});
    const Tensor ids = d.in("ids", {2}, std::vector<std::int32_t>{0, 1});
    refuses([&](Ops& o) { o.matmul(Lane::compute, {.a = m23, .b = m23, .c = m22}); });  // inner sizes
    refuses([&](Ops& o) { o.matmul(Lane::compute, {.a = m23, .b = m32, .c = low}); });  // c below T
    refuses([&](Ops& o) { o.matmul(Lane::compute, {.a = m23, .b = m32, .c = m22, .add = low}); });
    refuses([&](Ops& o) { o.rmsnorm_fwd(Lane::compute, {.x = wide, .w = v2, .y = wide, .rstd = v2}); });
    refuses([&](Ops& o) { o.sum(Lane::compute, {.x = v2, .out = v2}); });  // f64 wanted
    refuses([&](Ops& o) { o.add(Lane::compute, {.x = v2, .y = m22}); });
    refuses([&](Ops& o) { o.cast(Lane::compute, {.from = ids, .to = ids}); });
    refuses([&](Ops& o) { o.swiglu_fwd(Lane::compute, {.gu = m23, .h = m22}); });
    refuses([&](Ops& o) { o.loss_tile(Lane::compute, {.logits = m23, .targets = v2, .nll = v2}); });
    refuses([&](Ops& o) { o.embed_fwd(Lane::compute, {.ids = ids, .table = m23, .y = m22}); });
    Tensor missing = m22;
    missing.data = nullptr;
    refuses([&](Ops& o) { o.matmul(Lane::compute, {.a = m23, .b = m32, .c = missing}); });
    AdamW step{.grad = v2, .master = v2, .m = v2, .v = v2};
    step.step = 0;
    refuses([&](Ops& o) { o.adamw(Lane::compute, step); });
    BOOST_TEST(d.intact(), name);
  }
}

// The data readers vouch for ids; the reference looks again, where a kernel would read beyond the table.
BOOST_AUTO_TEST_CASE(cpu_operations_refuse_ids_beyond_the_vocabulary) {
  Device d(cpu());
  const Tensor table = d.out("table", DType::f32, {3, 2}), y = d.out("y", DType::f32, {2, 2});
  const Tensor ids = d.in("ids", {2}, std::vector<std::int32_t>{0, 3}), nll = d.out("nll", DType::f32, {2});
  BOOST_CHECK_THROW(d.ops().embed_fwd(Lane::compute, {.ids = ids, .table = table, .y = y}), Error);
  BOOST_CHECK_THROW(
      d.ops().loss_tile(Lane::compute, {.logits = y.view({2, 2}), .targets = ids, .nll = nll, .scale = 1.0}),
      Error);
  BOOST_TEST(d.intact());
}

BOOST_AUTO_TEST_CASE(exp_fast_is_good_to_three_places) {
  double worst = 0.0;
  for (float x = -87.f; x < 88.f; x += 0.00317f) {
    const double exact = std::exp(double(x));
    const float near = static_cast<float>(exact);
    worst = std::max(worst, std::abs(ref::exp_fast(x) - exact) / (std::nextafter(near, INFINITY) - near));
  }
  BOOST_TEST(worst < 3.0);  // measured 1.4
  BOOST_TEST(ref::exp_fast(0.f) == 1.f);
  BOOST_TEST(ref::exp_fast(-88.f) == 0.f);
  BOOST_TEST(ref::exp_fast(-INFINITY) == 0.f);
  BOOST_TEST(std::isnan(ref::exp_fast(NAN)));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace annulus::test
