// A plan as tables for a person, or as one JSON object for a script.
#pragma once
#include <string>
#include "train/planning.h"

namespace annulus {

/// `device`: its name and memory, when rates are known.
std::string plan_text(const Plan&, const PlanDevice&, const std::string& rates_path);
std::string plan_json(const Plan&, const PlanDevice&);
/// By how much the job does not fit, and what would make it fit.
std::string shortage(const Plan&, const std::vector<std::string>& levers);

}  // namespace annulus
