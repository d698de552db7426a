// What a model's parameters are called and how they lie in units.
#include <algorithm>
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

/// A starts as PEFT's kaiming_uniform(a = sqrt 5), which is uniform in +-1 / sqrt(in), B at zero.
Parameter adapter(std::string name, std::vector<std::int64_t> shape, double bound = 0) {
  Parameter p;
  p.name = std::move(name);
  p.shape = std::move(shape);
  p.init_std = 0.f;
  p.init_bound = static_cast<float>(bound);
  return p;
}

double bound_of(std::int64_t in) {
  return 1.0 / std::sqrt(static_cast<double>(in));
}

std::string adapters_of_layer(std::int64_t layer) {
  return "base_model.model.model.layers." + std::to_string(layer) + ".";
}

/// Adapters of those that are targets: first their A, joined, then their B.
AdapterIndex add_adapters(Unit& unit, const LoraConfig& lora, const std::string& layer, std::int64_t in,
                          std::initializer_list<Projected> joined) {
  const auto name = [&](Target t) { return layer + adapter_module(lora, t); };
  AdapterIndex at;
  std::int64_t column = 0;
  for (const Projected& p : joined) {
    const std::int64_t begin = column;
    column += p.out;
    if (!lora.adapts(p.target)) continue;
    const int number =
        add(unit, adapter(name(p.target) + ".lora_A.weight", {lora.rank, in}, bound_of(in)), at.count > 0);
    if (at.count == 0) at.a = number;
    at.column[static_cast<std::size_t>(at.count++)] = begin;
  }
  std::size_t i = 0;
  for (const Projected& p : joined)
    if (lora.adapts(p.target))
      at.b[i++] = add(unit, adapter(name(p.target) + ".lora_B.weight", {p.out, lora.rank}));
  return at;
}

/// How many of the layers before `end` have adapters of their own, or on their experts.
int adapted_layers(const ModelConfig& c, const LoraConfig& lora, std::int64_t end, bool experts) {
  int n = 0;
  for (std::int64_t l = 0; l < end; ++l)
    n += (experts ? adapts_experts(c, lora, l) : adapts_layer(c, lora, l)) ? 1 : 0;
  return n;
}

bool adapts_some(const ModelConfig& c, const LoraConfig& lora, std::int64_t layer, bool experts) {
  return std::any_of(lora.targets.begin(), lora.targets.end(),
                     [&](Target t) { return is_experts(t) == experts && has_target(c, layer, t); });
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

Unit make_adapter_unit(const ModelConfig& c, const LoraConfig& lora, std::int64_t layer, LayerIndex& at) {
  Unit u;
  u.name = "adapters of layer " + std::to_string(layer);
  const std::string name = adapters_of_layer(layer);
  const std::int64_t q = c.H * c.D, k = c.G * c.D;
  at.qkv_adapters = add_adapters(u, lora, name, c.C, {{Target::q, q}, {Target::k, k}, {Target::v, k}});
  at.o_adapters = add_adapters(u, lora, name, q, {{Target::o, c.C}});
  if (c.has_experts(layer)) return u;
  at.gu_adapters = add_adapters(u, lora, name, c.C, {{Target::gate, c.F}, {Target::up, c.F}});
  at.d_adapters = add_adapters(u, lora, name, c.F, {{Target::down, c.C}});
  return u;
}

LayerIndex layer_index(const ModelConfig& c, const LoraConfig& lora, std::int64_t layer) {
  LayerIndex at;
  make_layer_unit(c, layer, at);
  make_adapter_unit(c, lora, layer, at);
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

Unit make_expert_adapters_unit(const ModelConfig& c, const LoraConfig& lora, std::int64_t layer,
                               ExpertAdapterIndex& at) {
  Unit u;
  u.name = "adapters of the experts of layer " + std::to_string(layer);
  u.owners = Owners::experts;
  const auto stacks = [&](Target t, std::int64_t out, std::int64_t in, int& first) {
    if (!lora.adapts(t)) return;
    const std::string name = adapters_of_layer(layer) + adapter_module(lora, t);
    first = add(u, adapter(name + ".lora_A.weight", {c.E, lora.rank_of(t), in}, bound_of(in)));
    add(u, adapter(name + ".lora_B.weight", {c.E, out, lora.rank_of(t)}));
  };
  stacks(Target::experts_gate_up, 2 * c.Fe, c.C, at.gu);
  stacks(Target::experts_down, c.C, c.Fe, at.d);
  return u;
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
          .d = {.w = one(at.wd), .bias = one(at.bd)},
          .router = one(at.router)};
}

ExpertsView view_experts(const UnitView& unit) {
  return {.gu = {.w = unit[0]}, .d = {.w = unit[1]}};
}

void view_expert_adapters(const UnitView& unit, const ExpertAdapterIndex& at, ExpertsView& view) {
  const auto place = [&](int first, GroupedLinear& to) {
    if (first < 0) return;
    to.a = unit[first];
    to.b = unit[first + 1];
  };
  place(at.gu, view.gu);
  place(at.d, view.d);
}

int experts_unit(const ModelConfig& c, std::int64_t layer) {
  need(c.has_experts(layer), "model: the layer has no experts");
  return head_unit(c) + static_cast<int>(std::count(c.sparse.begin(), c.sparse.begin() + layer + 1, 1));
}

int base_units(const ModelConfig& c) {
  return head_unit(c) + 1 + static_cast<int>(std::count(c.sparse.begin(), c.sparse.end(), 1));
}

bool adapts_layer(const ModelConfig& c, const LoraConfig& lora, std::int64_t layer) {
  return adapts_some(c, lora, layer, false);
}

bool adapts_experts(const ModelConfig& c, const LoraConfig& lora, std::int64_t layer) {
  return adapts_some(c, lora, layer, true);
}

int adapter_unit(const ModelConfig& c, const LoraConfig& lora, std::int64_t layer) {
  return base_units(c) + adapted_layers(c, lora, layer, false);
}

int expert_adapters_unit(const ModelConfig& c, const LoraConfig& lora, std::int64_t layer) {
  return base_units(c) + adapted_layers(c, lora, c.L, false) + adapted_layers(c, lora, layer, true);
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
  if (adapts_layer(c, lora, layer)) units.push_back(adapter_unit(c, lora, layer));
  return units;
}

std::vector<int> expert_units(const ModelConfig& c, const LoraConfig& lora, std::int64_t layer) {
  std::vector<int> units = {experts_unit(c, layer)};
  if (adapts_experts(c, lora, layer)) units.push_back(expert_adapters_unit(c, lora, layer));
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

  for (std::int64_t l = 0; l < c.L; ++l)
    if (c.has_experts(l)) units.push_back(make_experts_unit(c, l));
  if (lora.rank > 0) {
    for (Unit& unit : units)
      for (Parameter& p : unit.parameters) p.trained = false;
    LayerIndex at;
    ExpertAdapterIndex experts;
    for (std::int64_t l = 0; l < c.L; ++l)
      if (adapts_layer(c, lora, l)) units.push_back(make_adapter_unit(c, lora, l, at));
    for (std::int64_t l = 0; l < c.L; ++l)
      if (adapts_experts(c, lora, l)) units.push_back(make_expert_adapters_unit(c, lora, l, experts));
  }

  std::uint64_t id = 0;
  for (Unit& unit : units)
    for (Parameter& p : unit.parameters) p.id = id++;
  return units;
}

}  // namespace annulus
