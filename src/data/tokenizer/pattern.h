// A regular expression of a tokenizer.json file, run by PCRE2.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace annulus {

/// An expression as tokenizer files write it, for Oniguruma, in PCRE2's words: \s and \S become explicit
/// classes of Unicode's White_Space (PCRE2's own differ at U+180E), and so on. Constructs that the two read
/// differently are refused (input error that names `where`).
std::string translate_expression(const std::string& expression, const std::string& where);

/// An expression that matches this text alone.
std::string quote_expression(std::string_view text);

/// One compiled expression. Not for two threads at once.
class Pattern {
 public:
  /// Fails (input, names `where`) when it cannot be compiled or can match no characters at all.
  Pattern(const std::string& expression, const std::string& where);
  ~Pattern();
  Pattern(Pattern&&) noexcept;

  struct Match {
    std::size_t begin = 0, end = 0;
  };
  /// The first match at or behind `from`; false when there is none. `text` is valid UTF-8 and is all that
  /// looking around sees.
  bool find(std::string_view text, std::size_t from, Match&);

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace annulus
