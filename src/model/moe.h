// Experts in the place of a layer's MLP: y = x1 + sum over a token's experts of weight * expert(norm2(x1)).
#pragma once
#include <vector>
#include "model/layer_view.h"
#include "model/work.h"

namespace annulus {

class Moe {
 public:
  Moe(Work& work, std::int64_t layer);

  /// Starts gathering the layer's experts.
  void prefetch();
  /// y may be x1. In training the choices are saved; `keep`: the experts stay gathered for the backward.
  void forward(const RowInputs&, const LayerView& w, const Tensor& x1, const Tensor& y, bool training,
               bool keep);
  /// dx: the gradient of y; becomes that of x1. Adds to the gradients of the layer and of its experts.
  void backward(const RowInputs&, const LayerView& w, const LayerView& g, const Tensor& x1, const Tensor& dx);

 private:
  /// Temporaries of the rows that experts work on, for the largest tile.
  struct Room;
  ExpertsView use_weights();
  ExpertsView open_gradients();  // null where a unit is frozen
  void drop_weights();
  void route(const LayerView& w, const Tensor& x1, const Tensor& valid, const Room&, RouteFwd call);
  void pack(int i, const ExpertTile&, const ExpertTravel&, const Room&, const Tensor& ids,
            const Tensor& weights, const Tensor& dy);
  struct Products;
  void compute_forward(const ExpertTile&, const ExpertRows& away, Products&, const Room&);
  void compute_backward(const ExpertTile&, const ExpertRows& away, Products&, const Room&);
  void take_in_gradient(const ExpertTile&, const ExpertRows& home, const Tensor& place, const LayerView& w,
                        const LayerView& g, const Tensor& x1, const Tensor& ids, const Tensor& dx,
                        const Room&);
  Tensor norm2(const LayerView& w, const Tensor& x1, const Room&);

  Work& work_;
  std::int64_t l_;
  std::vector<int> units_;  // the experts, and the adapters on them
  ExpertAdapterIndex adapters_;
  std::vector<ExpertTile> tiles_;  // of the row's forward; the backward takes the same
};

}  // namespace annulus
