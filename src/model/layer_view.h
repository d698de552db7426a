// A layer's tensors (weights or gradients) by the names that the equations give them.
#pragma once
#include "config/lora.h"
#include "config/model_config.h"
#include "model/grouped_projection.h"
#include "model/projection.h"
#include "parallel/sharded_state.h"

namespace annulus {

/// Where the adapters of one Linear stand in the layer's adapter unit.
struct AdapterIndex {
  int count = 0;
  int a = -1;  // the first of `count` joined ones
  std::array<int, Linear::kMost> b{};
  std::array<std::int64_t, Linear::kMost> column{};
};

/// Where a layer's parameters stand in its unit; -1: the model has none.
struct LayerIndex {
  int norm1 = -1, wqkv = -1, bqkv = -1, q_norm = -1, k_norm = -1, wo = -1, bo = -1;
  int norm2 = -1, wgu = -1, bgu = -1, wd = -1, bd = -1;
  int router = -1;
  AdapterIndex qkv_adapters, o_adapters, gu_adapters, d_adapters;
  bool adapted() const {
    return qkv_adapters.count + o_adapters.count + gu_adapters.count + d_adapters.count > 0;
  }
};

/// Where the A of experts' adapters stand in their unit, each before its B; -1: none.
struct ExpertAdapterIndex {
  int gu = -1, d = -1;
};

struct LayerView {
  Tensor norm1;           // (C)
  Linear qkv;             // ((H + 2G) D, C): q | k | v
  Tensor q_norm, k_norm;  // (D)
  Linear o;               // (C, H D)
  Tensor norm2;           // (C)
  Linear gu;              // (2F, C): gate | up
  Linear d;               // (C, F)
  Tensor router;          // (E, C), in place of the MLP's where the layer has experts
};

/// Experts of a rank, or their gradients (null where they are frozen).
struct ExpertsView {
  GroupedLinear gu;  // (X, 2 Fe, C): gate | up
  GroupedLinear d;   // (X, C, Fe)
};

/// The unit of one layer, and where its parameters stand in it. Its experts are a unit of their own.
Unit make_layer_unit(const ModelConfig&, std::int64_t layer, LayerIndex&);
Unit make_experts_unit(const ModelConfig&, std::int64_t layer);
/// The unit of a layer's adapters, named as PEFT names them; without adapters it is empty.
Unit make_adapter_unit(const ModelConfig&, const LoraConfig&, std::int64_t layer, LayerIndex&);
/// That of the adapters on a layer's experts.
Unit make_expert_adapters_unit(const ModelConfig&, const LoraConfig&, std::int64_t layer,
                               ExpertAdapterIndex&);
LayerIndex layer_index(const ModelConfig&, const LoraConfig&, std::int64_t layer);

/// Parameters that the model does not have stay null.
LayerView view_layer(const UnitView&, const LayerIndex&);
/// The adapters of the unit take their places in the view.
void view_adapters(const UnitView&, const LayerIndex&, LayerView&);
ExpertsView view_experts(const UnitView&);
void view_expert_adapters(const UnitView&, const ExpertAdapterIndex&, ExpertsView&);

}  // namespace annulus
