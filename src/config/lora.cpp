#include "config/lora.h"
#include <algorithm>
#include "config/values.h"
#include "core/check.h"

namespace annulus {
namespace {

constexpr double kAlpha = 8;  // PEFT's lora_alpha
constexpr Target kUsual[] = {Target::q, Target::v};
constexpr const char* kAll = "all-linear";

std::string short_name(Target t) {
  const std::string name = name_of(t);
  return name.substr(0, name.find('_'));
}

[[noreturn]] void unknown_target(const std::string& given) {
  std::string nearest = kAll;
  for (const Target t : kTargets)
    if (edit_distance(given, name_of(t)) < edit_distance(given, nearest)) nearest = name_of(t);
  usage_error("lora.targets holds \"" + given +
              "\", which matches no projection of the model; the nearest is " + nearest);
}

}  // namespace

const char* name_of(Target t) {
  constexpr const char* kNames[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                    "gate_proj", "up_proj", "down_proj"};
  return kNames[static_cast<int>(t)];
}

bool LoraConfig::adapts(Target t) const {
  return std::find(targets.begin(), targets.end(), t) != targets.end();
}

LoraConfig lora_config(const LoraSection& section) {
  LoraConfig c{.rank = section.rank,
               .alpha = section.alpha > 0 ? section.alpha : kAlpha,
               .rslora = section.rslora,
               .targets = {}};
  if (c.rank == 0) return c;
  bool wanted[std::size(kTargets)] = {};
  for (const std::string& given : section.targets) {
    bool found = false;
    for (const Target t : kTargets)
      if (given == kAll || given == name_of(t) || given == short_name(t))
        found = wanted[static_cast<int>(t)] = true;
    if (!found) unknown_target(given);
  }
  if (section.targets.empty())
    for (const Target t : kUsual) wanted[static_cast<int>(t)] = true;
  for (const Target t : kTargets)
    if (wanted[static_cast<int>(t)]) c.targets.push_back(t);
  return c;
}

std::string describe(const LoraConfig& c) {
  std::string text = "rank " + std::to_string(c.rank) + ", scale " + shortest(c.scale()) + ", on ";
  for (const Target t : c.targets) text += std::string(t == c.targets.front() ? "" : ", ") + name_of(t);
  return text;
}

}  // namespace annulus
