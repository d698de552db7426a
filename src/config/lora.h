// Low-rank adapters: which projections of a layer have them, and how large they are.
#pragma once
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>
#include "config/run_config.h"

namespace annulus {

/// Projections that can be adapted, in the order of the forward.
enum class Target : std::uint8_t { q, k, v, o, gate, up, down };
inline constexpr Target kTargets[] = {Target::q,    Target::k,  Target::v,   Target::o,
                                      Target::gate, Target::up, Target::down};
/// Its module's name: "q_proj".
const char* name_of(Target);

/// y = W x + scale * B A x on every target, A (rank, in) and B (out, rank).
struct LoraConfig {
  std::int64_t rank = 0;  // 0: no adapters
  double alpha = 0;
  bool rslora = false;
  std::vector<Target> targets;  // in the order of kTargets, each once

  double scale() const {
    const auto r = static_cast<double>(rank);
    return rank == 0 ? 0.0 : alpha / (rslora ? std::sqrt(r) : r);
  }
  bool adapts(Target) const;
};

/// Settles the section: targets by name (q_proj, or q for short; all-linear: every one), and PEFT's defaults
/// for what is not given (alpha 8; q_proj and v_proj). Usage error for a target that no layer has.
LoraConfig lora_config(const LoraSection&);

/// "rank 16, scale 2, on q_proj, v_proj".
std::string describe(const LoraConfig&);

}  // namespace annulus
