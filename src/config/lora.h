// Low-rank adapters: which matrices of a layer have them, and how large they are.
#pragma once
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>
#include "config/model_config.h"
#include "config/run_config.h"

namespace annulus {

/// Matrices that can be adapted, in the order of the forward. Gate, up and down are those of a dense layer; a
/// layer of experts has stacks of matrices instead, one for each expert.
enum class Target : std::uint8_t { q, k, v, o, gate, up, down, experts_gate_up, experts_down };
inline constexpr Target kTargets[] = {Target::q,           Target::k,  Target::v,    Target::o,
                                      Target::gate,        Target::up, Target::down, Target::experts_gate_up,
                                      Target::experts_down};
/// As PEFT is told of it: a module of target_modules ("q_proj"), or, of experts, a parameter of
/// target_parameters ("mlp.experts.down_proj").
const char* name_of(Target);
inline bool is_experts(Target t) {
  return t == Target::experts_gate_up || t == Target::experts_down;
}

/// y = W x + scale * B A x on every target, A (rank, in) and B (out, rank); of experts on each of their
/// matrices.
struct LoraConfig {
  std::int64_t rank = 0;  // 0: no adapters
  double alpha = 0;
  bool rslora = false;
  std::vector<Target> targets;  // in the order of kTargets, each once
  /// Experts' gate and up were named apart, as PEFT's target_modules does: the adapter of the stack that they
  /// form has twice the rank and twice alpha.
  bool gate_and_up = false;

  std::int64_t rank_of(Target t) const { return times(t) * rank; }
  double scale_of(Target t) const {
    const auto r = static_cast<double>(rank_of(t));
    return rank == 0 ? 0.0 : static_cast<double>(times(t)) * alpha / (rslora ? std::sqrt(r) : r);
  }
  double scale() const { return scale_of(Target::q); }  // of all others
  bool adapts(Target) const;
  /// What lora.targets has to hold for this.
  std::vector<std::string> target_names() const;

 private:
  std::int64_t times(Target t) const { return gate_and_up && t == Target::experts_gate_up ? 2 : 1; }
};

/// Settles the section: targets by name (q_proj, or q for short; experts: both of their stacks;
/// mlp.experts.gate_proj with mlp.experts.up_proj: see gate_and_up; all-linear: every one that the model
/// has), and PEFT's defaults for what is not given (alpha 8; q_proj and v_proj). Usage error for a target
/// that no layer of the model has.
LoraConfig lora_config(const LoraSection&, const ModelConfig&);
/// Usage error for a target that is none of any model.
void check_targets(const LoraSection&);
bool has_target(const ModelConfig&, std::int64_t layer, Target);
bool has_target(const ModelConfig&, Target);  // in any layer

/// Where PEFT puts the adapters of a target, behind "model.layers.N.": "self_attn.q_proj". Of a module of
/// which two parameters are adapted it wraps the wrapper of the first: "mlp.experts.base_layer" is then the
/// one of gate_up_proj, "mlp.experts" that of down_proj; a single one is "mlp.experts".
std::string adapter_module(const LoraConfig&, Target);

/// "rank 16, scale 2, on q_proj, v_proj".
std::string describe(const LoraConfig&);

}  // namespace annulus
