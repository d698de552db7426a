// Small tokenizer.json files for tests.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>
#include "data/tokenizer/byte_level.h"

namespace annulus::test {

inline constexpr const char* kQwenExpression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Text as a vocabulary writes it.
inline std::string written(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) out += character_of_byte(static_cast<std::uint8_t>(c));
  return out;
}

using TextPairs = std::vector<std::pair<std::string, std::string>>;

/// A file as Qwen's, of ids 0 to 255 for the bytes, then one for each merge (given as bytes), then one for
/// each added token.
inline nlohmann::json small_tokenizer(const TextPairs& merges, const std::vector<std::string>& added = {}) {
  using nlohmann::json;
  json vocabulary = json::object(), list = json::array(), tokens = json::array();
  int next = 0;
  for (int b = 0; b < 256; ++b) vocabulary[character_of_byte(static_cast<std::uint8_t>(b))] = next++;
  for (const auto& [left, right] : merges) {
    vocabulary[written(left + right)] = next++;
    list.push_back(written(left) + " " + written(right));
  }
  for (const std::string& content : added)
    tokens.push_back({{"id", next++}, {"content", content}, {"normalized", false}, {"special", true}});
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", kQwenExpression}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return {{"version", "1.0"},
          {"added_tokens", tokens},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", list}}}};
}

}  // namespace annulus::test
