// A layer's weights (or their gradients) by the names that the equations give them.
#pragma once
#include "config/model_config.h"
#include "parallel/sharded_state.h"

namespace annulus {

/// Where a layer's parameters stand in its unit; -1: the model has none.
struct LayerIndex {
  int norm1 = -1, wqkv = -1, bqkv = -1, q_norm = -1, k_norm = -1, wo = -1, bo = -1;
  int norm2 = -1, wgu = -1, bgu = -1, wd = -1, bd = -1;
  int router = -1;
};

struct LayerView {
  Tensor norm1;           // (C)
  Tensor wqkv, bqkv;      // ((H + 2G) D, C) and ((H + 2G) D): q | k | v
  Tensor q_norm, k_norm;  // (D)
  Tensor wo, bo;          // (C, H D) and (C)
  Tensor norm2;           // (C)
  Tensor wgu, bgu;        // (2F, C) and (2F): gate | up
  Tensor wd, bd;          // (C, F) and (C)
  Tensor router;          // (E, C), in place of the MLP's where the layer has experts
};

/// Experts of a rank, or their gradients (null where they are frozen).
struct ExpertsView {
  Tensor wgu;  // (X, 2 Fe, C): gate | up
  Tensor wd;   // (X, C, Fe)
};

/// The unit of one layer, and where its parameters stand in it. Its experts are a unit of their own.
Unit make_layer_unit(const ModelConfig&, std::int64_t layer, LayerIndex&);
LayerIndex layer_index(const ModelConfig&, std::int64_t layer);
Unit make_experts_unit(const ModelConfig&, std::int64_t layer);

/// Parameters that the model does not have stay null.
LayerView view_layer(const UnitView&, const LayerIndex&);
ExpertsView view_experts(const UnitView&);

}  // namespace annulus
