// A stack of matrices at work, one for each expert: y = x w', with the low-rank adapters on it.
#pragma once
#include <cstdint>
#include <span>
#include "core/arena.h"
#include "core/tensor.h"

namespace annulus {

struct Work;

/// Weights (or gradients) of one product an expert, over the experts that a rank holds:
///   y[rows of e] = x[rows of e] w[e]' + scale * (x[rows of e] a[e]') b[e]'.
/// Whatever is not there, or as a gradient is not wanted (frozen), is null.
struct GroupedLinear {
  Tensor w;    // (X, out, in)
  Tensor a{};  // (X, rank, in)
  Tensor b{};  // (X, out, rank)
};

/// One GroupedLinear over tiles of at most `rows` rows, those of an expert between its offset and the next;
/// holds the scratch that adapters need.
class GroupedProjection {
 public:
  /// `scale`: of the adapters.
  GroupedProjection(Work&, const GroupedLinear& weights, double scale, std::int64_t rows,
                    const GroupedLinear& gradient = {});
  using Offsets = std::span<const std::int64_t>;

  void forward(const Tensor& x, const Tensor& y, Offsets);

  /// Begins the backward of a tile: dy is the gradient of y, and stays until the two below are done, in
  /// whichever order.
  void backward(const Tensor& dy, Offsets);
  bool wants_weight_gradients() const { return g_.w || g_.a; }
  /// Adds to the gradient's tensors, x being what forward had.
  void weight_gradients(const Tensor& x);
  /// dx = the gradient of x.
  void input_gradient(const Tensor& dx);

 private:
  Tensor adapted(const Tensor& x, Offsets);  // scale * x a'

  Work& work_;
  GroupedLinear w_, g_;
  double scale_;
  Scope scope_;
  Tensor t_, dt_;  // (rows, rank): x a' and its gradient, both times scale
  Tensor dy_;
  Offsets offsets_;
};

}  // namespace annulus
