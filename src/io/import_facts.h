// What an imported weights file remembers of the folder it came from, beside the tensors.
#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace annulus {

inline constexpr std::string_view kModelGroup = "/model/";
inline constexpr const char* kConfigFact = "config_json";
inline constexpr const char* kSourceFact = "source_folder";  // where export finds the tokenizer's files
inline constexpr const char* kHalvesFact = "f16_tensors";    // JSON list: stored as f32, F16 in the source

/// Names of the tensors that were F16 in the source; `where` is for messages.
std::set<std::string> half_tensors(const std::map<std::string, std::string>& facts, const std::string& where);

}  // namespace annulus
