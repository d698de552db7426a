#include "data/tokenizer/pattern.h"
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <algorithm>
#include "core/check.h"
#include "core/one_line.h"

namespace annulus {
namespace {

constexpr std::size_t kStackStart = 32 << 10, kStackMost = 16 << 20;  // bytes, of compiled matching

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};

std::string library_says(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Pattern::Library {
  std::unique_ptr<pcre2_code, Freed<pcre2_code_free>> code;
  std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>> match;
  std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>> context;
  std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack_free>> stack;
  bool compiled = false;  // to machine code; some systems forbid that
  std::string where;
};

Pattern::Pattern(const std::string& expression, const std::string& where)
    : library_(std::make_unique<Library>()) {
  const std::string translated = translate_expression(expression, where);
  const std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>> how(
      pcre2_compile_context_create(nullptr));
  need(how != nullptr, "pcre2_compile_context_create gave nothing");
  if (pcre2_set_newline(how.get(), PCRE2_NEWLINE_LF) != 0) fail("pcre2_set_newline", "refused");
  int error = 0;
  PCRE2_SIZE at = 0;
  Library& l = *library_;
  l.where = where;
  l.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_MULTILINE, &error, &at, how.get()));
  if (l.code == nullptr)
    input_error(where + ": the expression \"" + one_line(expression) +
                "\" cannot be used: " + library_says(error) + " at byte " + std::to_string(at) + " of " +
                one_line(translated, 2000) + "; mend or fetch the file again");
  std::uint32_t matches_nothing = 0;
  if (pcre2_pattern_info(l.code.get(), PCRE2_INFO_MATCHEMPTY, &matches_nothing) != 0)
    fail("pcre2_pattern_info", "refused");
  if (matches_nothing != 0)
    input_error(where + ": the expression \"" + one_line(expression) +
                "\" can match no characters at all, which is not supported; give rows of input_ids instead");
  l.compiled = pcre2_jit_compile(l.code.get(), PCRE2_JIT_COMPLETE) == 0;
  l.match.reset(pcre2_match_data_create_from_pattern(l.code.get(), nullptr));
  l.context.reset(pcre2_match_context_create(nullptr));
  need(l.match != nullptr && l.context != nullptr, "PCRE2 gave no memory for matches");
  if (!l.compiled) return;
  l.stack.reset(pcre2_jit_stack_create(kStackStart, kStackMost, nullptr));
  need(l.stack != nullptr, "pcre2_jit_stack_create gave nothing");
  pcre2_jit_stack_assign(l.context.get(), nullptr, l.stack.get());
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;

bool Pattern::find(std::string_view text, std::size_t from, Match& found) {
  Library& l = *library_;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  // Enough for any expression that takes a time linear in the text; a file's explosive one ends here.
  const std::size_t limit = 10'000'000 + 64 * (text.size() - from);
  pcre2_set_match_limit(l.context.get(),
                        static_cast<std::uint32_t>(std::min<std::size_t>(limit, UINT32_MAX)));
  int code = PCRE2_ERROR_JIT_STACKLIMIT;
  if (l.compiled)
    code = pcre2_jit_match(l.code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, l.match.get(),
                           l.context.get());
  if (code == PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter keeps its state in ordinary memory
    code = pcre2_match(l.code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       l.match.get(), l.context.get());
  if (code == PCRE2_ERROR_NOMATCH) return false;
  if (code < 0)
    input_error(l.where + ": an expression gave up on a text of " + std::to_string(text.size()) + " bytes (" +
                library_says(code) + "); cut the text, or give rows of input_ids instead");
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(l.match.get());
  found = {ends[0], ends[1]};
  return true;
}

}  // namespace annulus
