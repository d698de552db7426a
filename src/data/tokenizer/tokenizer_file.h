// What a tokenizer.json file says, checked; what it asks for that this program does not do is refused by
// name.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>
#include "data/tokenizer/bpe.h"

namespace annulus {

/// Cuts a text at the matches of an expression, and keeps those pieces.
struct SplitStep {
  std::string expression;
  bool keep_matches = true, keep_gaps = true;
};

struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool normalized = false;  // looked for after the text's normalization, not before
};

struct TokenizerFile {
  bool nfc = false;
  std::vector<SplitStep> splits;                             // one after the other
  std::unordered_map<std::string, std::int32_t> vocabulary;  // as written in the file
  std::array<std::int32_t, 256> bytes{};                     // the token of each byte; -1: of no UTF-8 text
  std::vector<Merge> merges;
  bool ignore_merges = false;
  std::vector<AddedToken> added;
  std::vector<std::int32_t> before, after;  // tokens that the file puts round a text
  std::uint32_t digest = 0;                 // CRC-32 of the file
};

/// Fails (input) naming the file and what is wrong or unsupported; environment when it cannot be read.
TokenizerFile read_tokenizer_file(const std::string& path);
/// The same of the file's text; `where` names it.
TokenizerFile parse_tokenizer(const std::string& json, const std::string& where);

}  // namespace annulus
