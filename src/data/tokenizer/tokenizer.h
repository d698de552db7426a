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
#include "data/tokenizer/line_cuts.h"
#include "data/tokenizer/pattern.h"
#include "data/tokenizer/tokenizer_file.h"

namespace annulus {

/// Bytes [begin, end) of a text.
struct ByteRange {
  std::size_t begin = 0, end = 0;
};

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
  /// The same of a text in which added tokens count only where they lie in one of `open` (ascending, apart).
  /// `inside` gets a number a token: 1 where it holds a byte of one of `ranges` (ascending, apart). The edges
  /// of ranges must not lie between characters that normalization joins.
  void encode(std::string_view text, std::span<const ByteRange> open, std::span<const ByteRange> ranges,
              std::vector<std::int32_t>& to, std::vector<std::uint8_t>& inside);
  /// Whether there are places at all where cuts_at() may say so.
  bool cuts(bool added) const { return !cuts_.none() && !(added && lines_in_added_); }
  /// Whether a text may be taken apart before byte `at` of it, which follows a \n: then the tokens of the
  /// part before it, with the character at `at` put behind it, but for that character's own, and those of the
  /// rest are the whole's. Two whole characters must follow, or it does not say so. `added`: as for encode().
  bool cuts_at(std::string_view text, std::size_t at, bool added);
  /// The bytes that the tokens stand for; UTF-8 where the tokens are whole characters. Fails (input) on an id
  /// that is no token.
  std::string decode(std::span<const std::int32_t> ids) const;

  /// Tokens that the file puts round a text: a beginning-of-text, say.
  const std::vector<std::int32_t>& before() const { return before_; }
  const std::vector<std::int32_t>& after() const { return after_; }
  /// One more than the largest id.
  std::int64_t ids() const { return static_cast<std::int64_t>(text_of_.size()); }
  /// Whether the file adds this token, as it is spelled.
  bool is_added(const std::string& token) const;
  /// Of a token as the file spells it, added ones first.
  std::optional<std::int32_t> id_of(const std::string& token) const;

 private:
  void mark(std::string_view gap, std::size_t at, std::span<const ByteRange> ranges,
            std::span<const std::int32_t> ids, std::vector<std::uint8_t>& inside);
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
  AddedTokens spelled_;           // both, as the file spells them
  Bpe bpe_;
  LineCuts cuts_;
  bool lines_in_added_ = false;                      // an added token holds a \n
  std::vector<std::optional<std::string>> text_of_;  // by id
  std::unordered_map<std::string, std::int32_t> id_of_;
  std::vector<std::int32_t> before_, after_;
};

}  // namespace annulus
