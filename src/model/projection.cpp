#include "model/projection.h"
#include "model/work.h"

namespace annulus {

Projection::Projection(Work& work, const Linear& weights, std::int64_t rows, const Linear& gradient)
    : work_(work), w_(weights), g_(gradient), scope_(work.arena) {
  if (w_.a) t_ = scope_.take("x A", work.options.compute, {rows, w_.a.shape[0]});
  if (g_.a) dt_ = scope_.take("d(x A)", work.options.compute, {rows, w_.a.shape[0]});
}

/// each(i, columns of adapter i in y, in t)
template <class Each>
void Projection::for_adapters(const Each& each) const {
  for (std::size_t i = 0; i < Linear::kMost && w_.b[i]; ++i)
    each(
        i, [&, i](const Tensor& y) { return y.columns(w_.column[i], w_.b[i].shape[0]); },
        [&, i](const Tensor& t) { return t.columns(static_cast<std::int64_t>(i) * rank(), rank()); });
}

void Projection::forward(const Tensor& x, const Tensor& y, const Tensor& add) {
  Ops& ops = work_.ops;
  ops.matmul(Lane::compute, {.a = x, .b = w_.w, .c = y, .add = add, .bias = w_.bias, .trans_b = true});
  if (!w_.a) return;
  const Tensor t = t_.rows(0, x.shape[0]);
  ops.matmul(Lane::compute, {.a = x, .b = w_.a, .c = t, .trans_b = true});
  for_adapters([&](std::size_t i, const auto& of_y, const auto& of_t) {
    ops.matmul(Lane::compute, {.a = of_t(t),
                               .b = w_.b[i],
                               .c = of_y(y),
                               .add = of_y(y),
                               .trans_b = true,
                               .scale = work_.options.lora.scale()});
  });
}

void Projection::backward(const Tensor& dy) {
  dy_ = dy;
  if (!w_.a) return;
  const Tensor dt = dt_.rows(0, dy.shape[0]);
  for_adapters([&](std::size_t i, const auto& of_y, const auto& of_t) {
    work_.ops.matmul(Lane::compute,
                     {.a = of_y(dy), .b = w_.b[i], .c = of_t(dt), .scale = work_.options.lora.scale()});
  });
}

void Projection::weight_gradients(const Tensor& x) {
  Ops& ops = work_.ops;
  if (g_.w) ops.matmul(Lane::compute, {.a = dy_, .b = x, .c = g_.w, .add = g_.w, .trans_a = true});
  if (g_.bias) ops.column_sum(Lane::compute, {.x = dy_, .out = g_.bias});
  if (!g_.a) return;
  const std::int64_t n = dy_.shape[0];
  const Tensor t = t_.rows(0, n), dt = dt_.rows(0, n);
  ops.matmul(Lane::compute, {.a = x, .b = w_.a, .c = t, .trans_b = true});
  for_adapters([&](std::size_t i, const auto& of_y, const auto& of_t) {
    ops.matmul(Lane::compute, {.a = of_y(dy_),
                               .b = of_t(t),
                               .c = g_.b[i],
                               .add = g_.b[i],
                               .trans_a = true,
                               .scale = work_.options.lora.scale()});
  });
  ops.matmul(Lane::compute, {.a = dt, .b = x, .c = g_.a, .add = g_.a, .trans_a = true});
}

void Projection::input_gradient(const Tensor& dx) {
  work_.ops.matmul(Lane::compute, {.a = dy_, .b = w_.w, .c = dx});
  if (w_.a) work_.ops.matmul(Lane::compute, {.a = dt_.rows(0, dy_.shape[0]), .b = w_.a, .c = dx, .add = dx});
}

}  // namespace annulus
