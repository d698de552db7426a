// What a model's parameters are called and how they lie in units.
#include <cmath>
#include <initializer_list>
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

/// A projection that reads what its neighbours read, and what it gives.
struct Projected {
  Target target;
  std::int64_t out;
};

/// Adapters of those that are targets: first their A, joined, then their B. A starts as PEFT's
/// kaiming_uniform(a = sqrt 5), which is uniform in +-1 / sqrt(in), B at zero.
AdapterIndex add_adapters(Unit& unit, const LoraConfig& lora, const std::string& module, std::int64_t in,
                          std::initializer_list<Projected> joined) {
  const auto parameter = [&](Target t, const char* which, std::int64_t rows, std::int64_t columns) {
    Parameter p;
    p.name = module + name_of(t) + which;
    p.shape = {rows, columns};
    p.init_std = 0.f;
    return p;
  };
  AdapterIndex at;
  std::int64_t column = 0;
  for (const Projected& p : joined) {
    const std::int64_t begin = column;
    column += p.out;
    if (!lora.adapts(p.target)) continue;
    Parameter a = parameter(p.target, ".lora_A.weight", lora.rank, in);
    a.init_bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(in)));
    const int number = add(unit, std::move(a), at.count > 0);
    if (at.count == 0) at.a = number;
    at.column[static_cast<std::size_t>(at.count++)] = begin;
  }
  std::size_t i = 0;
  for (const Projected& p : joined)
    if (lora.adapts(p.target)) at.b[i++] = add(unit, parameter(p.target, ".lora_B.weight", p.out, lora.rank));
  return at;
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

Unit make_adapter_unit(const ModelConfig& c, const LoraConfig& lora, std::int64_t layer, LayerIndex& at) {
  Unit u;
  u.name = "adapters of layer " + std::to_string(layer);
  const std::string name = "base_model.model.model.layers." + std::to_string(layer) + ".";
  const std::string attention = name + "self_attn.", mlp = name + "mlp.";
  const std::int64_t q = c.H * c.D, k = c.G * c.D;
  at.qkv_adapters = add_adapters(u, lora, attention, c.C, {{Target::q, q}, {Target::k, k}, {Target::v, k}});
  at.o_adapters = add_adapters(u, lora, attention, q, {{Target::o, c.C}});
  at.gu_adapters = add_adapters(u, lora, mlp, c.C, {{Target::gate, c.F}, {Target::up, c.F}});
  at.d_adapters = add_adapters(u, lora, mlp, c.F, {{Target::down, c.C}});
  return u;
}

LayerIndex layer_index(const ModelConfig& c, const LoraConfig& lora) {
  LayerIndex at;
  make_layer_unit(c, 0, at);
  make_adapter_unit(c, lora, 0, at);
  return at;
}

LayerView view_layer(const UnitView& unit, const LayerIndex& at) {
  const auto one = [&](int i) { return i < 0 ? Tensor{} : unit[i]; };
  const auto several = [&](int i, int count) { return i < 0 ? Tensor{} : unit.joined(i, count); };
  return {.norm1 = one(at.norm1),
          .qkv = {.w = several(at.wqkv, 3), .bias = several(at.bqkv, 3)},
          .q_norm = one(at.q_norm),
          .k_norm = one(at.k_norm),
          .o = {.w = one(at.wo), .bias = one(at.bo)},
          .norm2 = one(at.norm2),
          .gu = {.w = several(at.wgu, 2), .bias = several(at.bgu, 2)},
          .d = {.w = one(at.wd), .bias = one(at.bd)}};
}

void view_adapters(const UnitView& unit, const LayerIndex& at, LayerView& view) {
  const auto place = [&](const AdapterIndex& from, Linear& to) {
    if (from.count == 0) return;
    to.a = unit.joined(from.a, from.count);
    for (std::size_t i = 0; i < static_cast<std::size_t>(from.count); ++i) {
      to.b[i] = unit[from.b[i]];
      to.column[i] = from.column[i];
    }
  };
  place(at.qkv_adapters, view.qkv);
  place(at.o_adapters, view.o);
  place(at.gu_adapters, view.gu);
  place(at.d_adapters, view.d);
}

std::vector<int> layer_units(const ModelConfig& c, const LoraConfig& lora, std::int64_t layer) {
  std::vector<int> units = {layer_unit(layer)};
  if (lora.rank > 0) units.push_back(adapter_unit(c, layer));
  return units;
}

std::vector<Unit> make_units(const ModelConfig& c, const LoraConfig& lora) {
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

  if (lora.rank > 0) {
    for (Unit& unit : units)
      for (Parameter& p : unit.parameters) p.trained = false;
    for (std::int64_t l = 0; l < c.L; ++l) {
      LayerIndex at;
      units.push_back(make_adapter_unit(c, lora, l, at));
    }
  }

  std::uint64_t id = 0;
  for (Unit& unit : units)
    for (Parameter& p : unit.parameters) p.id = id++;
  return units;
}

}  // namespace annulus
