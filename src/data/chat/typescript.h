// Tools as GPT-OSS reads them: a TypeScript namespace with a type a tool.
#pragma once
#include <string>
#include <vector>
#include "data/json_value.h"

namespace annulus {

/// The namespace "functions", letter by letter as the model's template writes it, blanks that look accidental
/// included. `tools`: objects with a function that has a name, a description and perhaps parameters in JSON
/// Schema. Throws RowError where the template would fail.
std::string typescript_tools(const std::vector<JsonValue>& tools);

}  // namespace annulus
