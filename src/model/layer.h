// One transformer layer: x1 = x + Attention(norm1(x)), y = x1 + MLP(norm2(x1)) or experts; forward and
// backward.
#pragma once
#include "model/layer_view.h"
#include "model/moe.h"
#include "model/work.h"

namespace annulus {

class Layer {
 public:
  Layer(Work& work, std::int64_t number, LayerIndex index)
      : work_(work), at_(index), l_(number), unit_(layer_unit(number)), moe_(work, number) {}

  /// Takes over x (Tl, C), which it saves for the backward or overwrites, and returns the layer's output.
  Tensor forward(const RowInputs&, Tensor x, bool training);
  /// dx (Tl, C): the gradient of the output; becomes that of the input. Adds to the unit's gradient.
  void backward(const RowInputs&, const Tensor& dx);

 private:
  struct Rotated {
    Tensor q, kv;
  };
  struct Attended {
    Tensor a, lse;
  };  // (Tl, H D), (H, Tl)
  bool saves_attention() const { return work_.options.keep_attention || !work_.options.recompute; }
  bool saves_all() const { return !work_.options.recompute; }
  bool sparse() const { return work_.config.has_experts(l_); }
  std::int64_t window() const { return work_.config.windows[static_cast<std::size_t>(l_)]; }

  Tensor norm1(const LayerView&, const Tensor& x, const Tensor& rstd);
  Tensor project(const LayerView&, const Tensor& h, Region);
  Tensor norm_and_project(const LayerView&, const Tensor& x, Region);
  Rotated rotate(const RowInputs&, const LayerView&, const Tensor& qkv);
  Attended attend(const RowInputs&, const Rotated&, Region);
  void mlp_forward(const LayerView&, const Tensor& x1, const Tensor& y, const Tensor& gu_saved);
  void mlp_backward(const LayerView& w, const LayerView& g, const Tensor& x1, const Tensor& gu_saved,
                    const Tensor& dx);
  void look_ahead();
  void look_ahead_experts();
  void attention_backward(const RowInputs&, const LayerView& w, const LayerView& g, const Attended&, Rotated,
                          Tensor qkv, const Tensor& dx);
  void projection_backward(const RowInputs&, const LayerView& w, const LayerView& g, Tensor qkv,
                           const Tensor& dq, const Tensor& dkv, const Tensor& dx);

  Work& work_;
  LayerIndex at_;
  std::int64_t l_;
  int unit_;
  Moe moe_;  // of a sparse layer
};

}  // namespace annulus
