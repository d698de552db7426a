// Text to tokens and back, as a model folder's tokenizer.json says (byte-level BPE).
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pattern.h"
#include "data/tokenizer/tokenizer_file.h"

namespace annulus {

/// Gives the ids that the file's own library gives. Not for two threads at once.
class Tokenizer {
 public:
  /// Reads tokenizer.json; fails as read_tokenizer_file() does.
  explicit Tokenizer(const std::string& path);
  Tokenizer(const TokenizerFile&, const std::string& where);

  /// Appends the tokens of a text, which must be valid UTF-8, without those that the file puts round a text.
  /// `added`: added tokens (control tokens among them) that the text spells count as such; otherwise they are
  /// text like any other.
  void encode(std::string_view text, bool added, std::vector<std::int32_t>& to);
  /// The bytes that the tokens stand for; UTF-8 where the tokens are whole characters. Fails (input) on an id
  /// that is no token.
  std::string decode(std::span<const std::int32_t> ids) const;

  /// Tokens that the file puts round a text: a beginning-of-text, say.
  const std::vector<std::int32_t>& before() const { return before_; }
  const std::vector<std::int32_t>& after() const { return after_; }
  /// One more than the largest id.
  std::int64_t ids() const { return static_cast<std::int64_t>(text_of_.size()); }
  /// Of a token as the file spells it, added ones first.
  std::optional<std::int32_t> id_of(const std::string& token) const;

 private:
  void encode_normalized(std::string_view text, bool added, std::vector<std::int32_t>& to);
  void split(std::string_view text, std::size_t step, std::vector<std::int32_t>& to);

  struct Step {
    Pattern pattern;
    bool keep_matches, keep_gaps;
  };
  std::string where_;
  bool nfc_;
  std::string normal_;  // a text's normal form
  std::vector<Step> steps_;
  AddedTokens raw_, normalized_;  // looked for before and after normalization
  Bpe bpe_;
  std::vector<std::optional<std::string>> text_of_;  // by id
  std::unordered_map<std::string, std::int32_t> id_of_;
  std::vector<std::int32_t> before_, after_;
};

}  // namespace annulus
