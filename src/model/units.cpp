// What a model's parameters are called and how they lie in units.
#include <algorithm>
#include <utility>
#include "model/layer_view.h"
#include "model/model.h"

namespace annulus {
namespace {

Parameter matrix(const ModelConfig& c, std::string name, std::int64_t rows, std::int64_t columns) {
  Parameter p;
  p.name = std::move(name);
  p.shape = {rows, columns};
  p.init_std = static_cast<float>(c.init_std);
  return p;
}

/// Norms start at one, biases at zero; neither decays.
Parameter vector(std::string name, std::int64_t size, float value) {
  Parameter p;
  p.name = std::move(name);
  p.shape = {size};
  p.decay = false;
  p.init_std = 0.f;
  p.init_value = value;
  return p;
}

int add(Unit& unit, Parameter p, bool joined = false) {
  unit.add(std::move(p), joined);
  return static_cast<int>(unit.parameters.size()) - 1;
}

}  // namespace

Unit make_layer_unit(const ModelConfig& c, std::int64_t layer, LayerIndex& at) {
  Unit u;
  u.name = "layer " + std::to_string(layer);
  const std::string name = "model.layers." + std::to_string(layer) + ".";
  const std::string attention = name + "self_attn.", mlp = name + "mlp.";
  const std::int64_t q = c.H * c.D, k = c.G * c.D;

  at.norm1 = add(u, vector(name + "input_layernorm.weight", c.C, 1.f));
  at.wqkv = add(u, matrix(c, attention + "q_proj.weight", q, c.C));
  add(u, matrix(c, attention + "k_proj.weight", k, c.C), true);
  add(u, matrix(c, attention + "v_proj.weight", k, c.C), true);
  if (c.qkv_bias) {
    at.bqkv = add(u, vector(attention + "q_proj.bias", q, 0.f));
    add(u, vector(attention + "k_proj.bias", k, 0.f), true);
    add(u, vector(attention + "v_proj.bias", k, 0.f), true);
  }
  if (c.qk_norm) {
    at.q_norm = add(u, vector(attention + "q_norm.weight", c.D, 1.f));
    at.k_norm = add(u, vector(attention + "k_norm.weight", c.D, 1.f));
  }
  at.wo = add(u, matrix(c, attention + "o_proj.weight", c.C, q));
  if (c.o_bias) at.bo = add(u, vector(attention + "o_proj.bias", c.C, 0.f));

  at.norm2 = add(u, vector(name + "post_attention_layernorm.weight", c.C, 1.f));
  if (c.has_experts(layer)) {
    at.router = add(u, matrix(c, mlp + "gate.weight", c.E, c.C));
    return u;
  }
  at.wgu = add(u, matrix(c, mlp + "gate_proj.weight", c.F, c.C));
  add(u, matrix(c, mlp + "up_proj.weight", c.F, c.C), true);
  if (c.mlp_bias) {
    at.bgu = add(u, vector(mlp + "gate_proj.bias", c.F, 0.f));
    add(u, vector(mlp + "up_proj.bias", c.F, 0.f), true);
  }
  at.wd = add(u, matrix(c, mlp + "down_proj.weight", c.C, c.F));
  if (c.mlp_bias) at.bd = add(u, vector(mlp + "down_proj.bias", c.C, 0.f));
  return u;
}

LayerIndex layer_index(const ModelConfig& c, std::int64_t layer) {
  LayerIndex at;
  make_layer_unit(c, layer, at);
  return at;
}

Unit make_experts_unit(const ModelConfig& c, std::int64_t layer) {
  Unit u;
  u.name = "experts of layer " + std::to_string(layer);
  u.owners = Owners::experts;
  const std::string name = "model.layers." + std::to_string(layer) + ".mlp.experts.";
  const auto stack = [&](const char* which, std::int64_t rows, std::int64_t columns) {
    Parameter p = matrix(c, name + which, rows, columns);
    p.shape.insert(p.shape.begin(), c.E);
    u.add(std::move(p));
  };
  stack("gate_up_proj", 2 * c.Fe, c.C);
  stack("down_proj", c.C, c.Fe);
  return u;
}

LayerView view_layer(const UnitView& unit, const LayerIndex& at) {
  const auto one = [&](int i) { return i < 0 ? Tensor{} : unit[i]; };
  const auto several = [&](int i, int count) { return i < 0 ? Tensor{} : unit.joined(i, count); };
  return {.norm1 = one(at.norm1),
          .wqkv = several(at.wqkv, 3),
          .bqkv = several(at.bqkv, 3),
          .q_norm = one(at.q_norm),
          .k_norm = one(at.k_norm),
          .wo = one(at.wo),
          .bo = one(at.bo),
          .norm2 = one(at.norm2),
          .wgu = several(at.wgu, 2),
          .bgu = several(at.bgu, 2),
          .wd = one(at.wd),
          .bd = one(at.bd),
          .router = one(at.router)};
}

ExpertsView view_experts(const UnitView& unit) {
  return {.wgu = unit[0], .wd = unit[1]};
}

int experts_unit(const ModelConfig& c, std::int64_t layer) {
  need(c.has_experts(layer), "model: the layer has no experts");
  return head_unit(c) + static_cast<int>(std::count(c.sparse.begin(), c.sparse.begin() + layer + 1, 1));
}

std::vector<Unit> make_units(const ModelConfig& c) {
  std::vector<Unit> units(1);
  units[kEmbedUnit].name = "embedding";
  units[kEmbedUnit].add(matrix(c, "model.embed_tokens.weight", c.V, c.C));
  for (std::int64_t l = 0; l < c.L; ++l) {
    LayerIndex at;
    units.push_back(make_layer_unit(c, l, at));
  }
  Unit& head = units.emplace_back();
  head.name = "head";
  head.add(vector("model.norm.weight", c.C, 1.f));
  if (!c.tied) head.add(matrix(c, "lm_head.weight", c.V, c.C));

  for (std::int64_t l = 0; l < c.L; ++l)
    if (c.has_experts(l)) units.push_back(make_experts_unit(c, l));

  std::uint64_t id = 0;
  for (Unit& unit : units)
    for (Parameter& p : unit.parameters) p.id = id++;
  return units;
}

}  // namespace annulus
