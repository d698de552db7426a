#include "model/grouped_projection.h"
#include "model/work.h"

namespace annulus {

GroupedProjection::GroupedProjection(Work& work, const GroupedLinear& weights, double scale,
                                     std::int64_t rows, const GroupedLinear& gradient)
    : work_(work), w_(weights), g_(gradient), scale_(scale), scope_(work.arena) {
  if (w_.a) t_ = scope_.take("experts' x A", work.options.compute, {rows, w_.a.shape[1]});
  if (g_.a) dt_ = scope_.take("experts' d(x A)", work.options.compute, {rows, w_.a.shape[1]});
}

Tensor GroupedProjection::adapted(const Tensor& x, Offsets offsets) {
  const Tensor t = t_.rows(0, x.shape[0]);
  work_.ops.grouped_matmul(Lane::compute,
                           {.a = x, .b = w_.a, .c = t, .offsets = offsets, .trans_b = true, .scale = scale_});
  return t;
}

void GroupedProjection::forward(const Tensor& x, const Tensor& y, Offsets offsets) {
  Ops& ops = work_.ops;
  ops.grouped_matmul(Lane::compute, {.a = x, .b = w_.w, .c = y, .offsets = offsets, .trans_b = true});
  if (!w_.a) return;
  const Tensor t = adapted(x, offsets);
  ops.grouped_matmul(Lane::compute,
                     {.a = t, .b = w_.b, .c = y, .offsets = offsets, .trans_b = true, .add = true});
}

void GroupedProjection::backward(const Tensor& dy, Offsets offsets) {
  dy_ = dy;
  offsets_ = offsets;
  if (!w_.a) return;
  work_.ops.grouped_matmul(
      Lane::compute,
      {.a = dy, .b = w_.b, .c = dt_.rows(0, dy.shape[0]), .offsets = offsets, .scale = scale_});
}

void GroupedProjection::weight_gradients(const Tensor& x) {
  const auto add = [&](const Tensor& a, const Tensor& b, const Tensor& c) {
    work_.ops.grouped_matmul(Lane::compute, {.a = a, .b = b, .c = c, .offsets = offsets_, .gradient = true});
  };
  if (g_.w) add(dy_, x, g_.w);
  if (!g_.a) return;
  add(dt_.rows(0, dy_.shape[0]), x, g_.a);
  add(dy_, adapted(x, offsets_), g_.b);
}

void GroupedProjection::input_gradient(const Tensor& dx) {
  Ops& ops = work_.ops;
  ops.grouped_matmul(Lane::compute, {.a = dy_, .b = w_.w, .c = dx, .offsets = offsets_});
  if (!w_.a) return;
  ops.grouped_matmul(Lane::compute,
                     {.a = dt_.rows(0, dy_.shape[0]), .b = w_.a, .c = dx, .offsets = offsets_, .add = true});
}

}  // namespace annulus
