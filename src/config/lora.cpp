#include "config/lora.h"
#include <algorithm>
#include "config/values.h"
#include "core/check.h"

namespace annulus {
namespace {

constexpr double kAlpha = 8;  // PEFT's lora_alpha
constexpr Target kUsual[] = {Target::q, Target::v};
constexpr const char* kAll = "all-linear";

constexpr const char* kExperts = "experts";
constexpr const char* kApart[] = {"mlp.experts.gate_proj", "mlp.experts.up_proj"};

/// "q" of "q_proj"; experts have none.
std::string short_name(Target t) {
  const std::string name = name_of(t);
  return is_experts(t) ? name : name.substr(0, name.find('_'));
}

bool is_apart(const std::string& given) {
  return given == kApart[0] || given == kApart[1];
}

bool names(const std::string& given, Target t) {
  return given == kAll || given == name_of(t) || given == short_name(t) ||
         (given == kExperts && is_experts(t)) || (t == Target::experts_gate_up && is_apart(given));
}

/// Whether gate and up of experts are named apart; usage error where one of them is not, or both also as one.
bool gate_and_up(const LoraSection& section) {
  const auto given = [&](const char* name) {
    return std::find(section.targets.begin(), section.targets.end(), name) != section.targets.end();
  };
  if (given(kApart[0]) != given(kApart[1]))
    usage_error(std::string("lora.targets holds \"") + kApart[given(kApart[0]) ? 0 : 1] + "\" without \"" +
                kApart[given(kApart[0]) ? 1 : 0] + "\", and both have one adapter; give both");
  if (given(kApart[0]) && (given(kAll) || given(kExperts) || given(name_of(Target::experts_gate_up))))
    usage_error(std::string("lora.targets holds \"") + kApart[0] + "\" and the same again as " +
                name_of(Target::experts_gate_up) + ", of another rank; give one of them");
  return given(kApart[0]);
}

[[noreturn]] void unknown_target(const std::string& given) {
  std::string nearest = kAll;
  for (const Target t : kTargets)
    if (edit_distance(given, name_of(t)) < edit_distance(given, nearest)) nearest = name_of(t);
  usage_error("lora.targets holds \"" + given +
              "\", which matches no projection of the model; the nearest is " + nearest);
}

[[noreturn]] void no_such_layer(const std::string& given, Target t) {
  const std::string holds = "lora.targets holds \"" + given + "\", and ";
  if (is_experts(t)) usage_error(holds + "the model has no experts; give gate_proj, up_proj or down_proj");
  usage_error(holds +
              "every layer of the model has experts in the place of that matrix; give "
              "mlp.experts.gate_up_proj or mlp.experts.down_proj");
}

}  // namespace

const char* name_of(Target t) {
  constexpr const char* kNames[] = {"q_proj",
                                    "k_proj",
                                    "v_proj",
                                    "o_proj",
                                    "gate_proj",
                                    "up_proj",
                                    "down_proj",
                                    "mlp.experts.gate_up_proj",
                                    "mlp.experts.down_proj"};
  return kNames[static_cast<int>(t)];
}

bool has_target(const ModelConfig& model, std::int64_t layer, Target t) {
  return t < Target::gate || is_experts(t) == model.has_experts(layer);
}

bool has_target(const ModelConfig& model, Target t) {
  for (std::int64_t l = 0; l < model.L; ++l)
    if (has_target(model, l, t)) return true;
  return false;
}

bool LoraConfig::adapts(Target t) const {
  return std::find(targets.begin(), targets.end(), t) != targets.end();
}

std::vector<std::string> LoraConfig::target_names() const {
  std::vector<std::string> all;
  for (const Target t : targets)
    if (times(t) == 1)
      all.emplace_back(name_of(t));
    else
      all.insert(all.end(), std::begin(kApart), std::end(kApart));
  return all;
}

void check_targets(const LoraSection& section) {
  for (const std::string& given : section.targets)
    if (std::none_of(std::begin(kTargets), std::end(kTargets), [&](Target t) { return names(given, t); }))
      unknown_target(given);
}

LoraConfig lora_config(const LoraSection& section, const ModelConfig& model) {
  LoraConfig c{.rank = section.rank,
               .alpha = section.alpha > 0 ? section.alpha : kAlpha,
               .rslora = section.rslora,
               .targets = {}};
  if (c.rank == 0) return c;
  check_targets(section);
  c.gate_and_up = gate_and_up(section);
  bool wanted[std::size(kTargets)] = {};
  for (const std::string& given : section.targets)
    for (const Target t : kTargets) {
      if (!names(given, t)) continue;
      const bool there = has_target(model, t);
      if (!there && given != kAll) no_such_layer(given, t);
      wanted[static_cast<int>(t)] = wanted[static_cast<int>(t)] || there;
    }
  if (section.targets.empty())
    for (const Target t : kUsual) wanted[static_cast<int>(t)] = true;
  for (const Target t : kTargets)
    if (wanted[static_cast<int>(t)]) c.targets.push_back(t);
  return c;
}

std::string adapter_module(const LoraConfig& c, Target t) {
  if (is_experts(t)) {
    const bool inner = t == Target::experts_gate_up && c.adapts(Target::experts_down);
    return inner ? "mlp.experts.base_layer" : "mlp.experts";
  }
  return (t < Target::gate ? "self_attn." : "mlp.") + std::string(name_of(t));
}

std::string describe(const LoraConfig& c) {
  std::string text = "rank " + std::to_string(c.rank) + ", scale " + shortest(c.scale()) + ", on ";
  const char* comma = "";
  for (const std::string& name : c.target_names()) {
    text += comma + name;
    comma = ", ";
  }
  return text;
}

}  // namespace annulus
