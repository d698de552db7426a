// A matrix of a layer at work: y = x w' + bias, with the low-rank adapters on it.
#pragma once
#include <array>
#include "core/arena.h"
#include "core/tensor.h"

namespace annulus {

struct Work;

/// Weights (or gradients) of one product. Several matrices that read the same x are joined, q | k | v or
/// gate | up, and each of them may have an adapter: y[:, column_i ...] += scale * (x a_i') b_i'.
/// Whatever is not there, or as a gradient is not wanted (frozen), is null.
struct Linear {
  static constexpr std::size_t kMost = 3;  // adapters: q, k, v

  Tensor w;                                  // (out, in)
  Tensor bias{};                             // (out)
  Tensor a{};                                // (adapters x rank, in): a_i one below the other
  std::array<Tensor, kMost> b{};             // (out_i, rank)
  std::array<std::int64_t, kMost> column{};  // where the out_i columns of y begin
};

/// One Linear over tiles of at most `rows` tokens; holds the scratch that adapters need.
class Projection {
 public:
  Projection(Work&, const Linear& weights, std::int64_t rows, const Linear& gradient = {});

  /// y = x w' + bias + add + the adapters' part.
  void forward(const Tensor& x, const Tensor& y, const Tensor& add = {});

  /// Begins the backward of a tile: dy is the gradient of y, and stays until the two below are done, in
  /// whichever order.
  void backward(const Tensor& dy);
  /// Adds to the gradient's tensors, x being what forward had.
  void weight_gradients(const Tensor& x);
  /// dx = the gradient of x.
  void input_gradient(const Tensor& dx);

 private:
  std::int64_t rank() const { return w_.b[0].shape[1]; }
  template <class Each>
  void for_adapters(const Each&) const;

  Work& work_;
  Linear w_, g_;
  Scope scope_;
  Tensor t_, dt_;  // (rows, adapters x rank): x a' and its gradient
  Tensor dy_;
};

}  // namespace annulus
