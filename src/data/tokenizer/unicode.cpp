#include "data/tokenizer/unicode.h"
#include <utf8proc.h>
#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>
#include "core/check.h"

namespace annulus {
namespace {

/// The tables of the library that tokenizers were made with are those of Unicode 9. Marks that came later are
/// letters like any other to it: they are not reordered, and nothing composes with them or across them.
constexpr std::uint32_t kLaterMarks[][2] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930},
    {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
    {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x16FF0, 0x16FF1},
    {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}};

bool is_later_mark(std::uint32_t c) {
  return std::any_of(std::begin(kLaterMarks), std::end(kLaterMarks),
                     [c](const auto& range) { return range[0] <= c && c <= range[1]; });
}

std::uint8_t byte_at(std::string_view text, std::size_t at) {
  return static_cast<std::uint8_t>(text[at]);
}

/// Bytes from `at` that are ASCII.
std::size_t ascii_run(std::string_view text, std::size_t at) {
  const std::size_t from = at;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t eight;
    std::memcpy(&eight, text.data() + at, 8);
    if ((eight & 0x8080808080808080u) != 0) break;
  }
  while (at < text.size() && byte_at(text, at) < 0x80) ++at;
  return at - from;
}

/// Appends the normal form of characters that are decomposed already, and takes them away.
void compose_run(std::vector<utf8proc_int32_t>& run, std::string& to) {
  // The library's own ordering of marks is quadratic in the length of a run of them.
  const auto mark_class = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  const auto is_mark = [&](utf8proc_int32_t c) { return mark_class(c) != 0; };
  for (auto from = run.begin(); (from = std::find_if(from, run.end(), is_mark)) != run.end();) {
    const auto end = std::find_if_not(from, run.end(), is_mark);
    std::stable_sort(from, end, [&](auto a, auto b) { return mark_class(a) < mark_class(b); });
    from = end;
  }
  const auto length =
      utf8proc_normalize_utf32(run.data(), static_cast<utf8proc_ssize_t>(run.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  if (length < 0) fail("utf8proc_normalize_utf32", utf8proc_errmsg(length));
  for (utf8proc_ssize_t i = 0; i < length; ++i)
    append_code_point(static_cast<std::uint32_t>(run[static_cast<std::size_t>(i)]), to);
  run.clear();
}

/// Appends the normal form of a text that ends where it may be cut.
void compose(std::string_view text, std::vector<utf8proc_int32_t>& run, std::string& to) {
  for (std::size_t at = 0; at < text.size();) {
    const std::uint32_t c = next_code_point(text, at);
    if (is_later_mark(c)) {
      compose_run(run, to);
      append_code_point(c, to);
      continue;
    }
    utf8proc_int32_t parts[32];
    int ignored = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32, UTF8PROC_DECOMPOSE, &ignored);
    if (count < 0 || count > 32) fail("utf8proc_decompose_char", utf8proc_errmsg(count));
    run.insert(run.end(), parts, parts + count);
  }
  compose_run(run, to);
}

}  // namespace

std::int64_t first_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0;;) {
    at += ascii_run(text, at);
    if (at == text.size()) return -1;
    const std::uint8_t lead = byte_at(text, at);
    const std::size_t more = lead < 0xC2 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : lead < 0xF5 ? 3 : 0;
    if (more == 0 || text.size() - at <= more) return static_cast<std::int64_t>(at);
    const std::uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const std::uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    bool good = byte_at(text, at + 1) >= low && byte_at(text, at + 1) <= high;
    for (std::size_t i = 2; i <= more; ++i) good = good && (byte_at(text, at + i) & 0xC0) == 0x80;
    if (!good) return static_cast<std::int64_t>(at);
    at += more + 1;
  }
}

std::uint32_t next_code_point(std::string_view text, std::size_t& at) {
  const std::uint32_t lead = byte_at(text, at++);
  if (lead < 0x80) return lead;
  const int more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  std::uint32_t c = lead & (0x3Fu >> more);
  for (int i = 0; i < more; ++i) c = (c << 6) | (byte_at(text, at++) & 0x3Fu);
  return c;
}

void append_code_point(std::uint32_t c, std::string& to) {
  const auto tail = [&](int shift) { to += static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) {
    to += static_cast<char>(c);
  } else if (c < 0x800) {
    to += static_cast<char>(0xC0 | (c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    to += static_cast<char>(0xE0 | (c >> 12));
    tail(6), tail(0);
  } else {
    to += static_cast<char>(0xF0 | (c >> 18));
    tail(12), tail(6), tail(0);
  }
}

bool nfc_cuts_before(std::uint32_t c) {
  return c < 0x300 || (c >= 0x400 && c < 0x483) || (c >= 0x2010 && c < 0x2028) ||
         (c >= 0x3000 && c < 0x302A) || (c >= 0x3041 && c < 0x3097) || (c >= 0x30A1 && c < 0x30FB) ||
         (c >= 0x3400 && c < 0xA000) || (c >= 0xAC00 && c < 0xD7A4) || (c >= 0xFF00 && c < 0xFFF0) ||
         (c >= 0x1F300 && c < 0x1FB00);
}

std::string_view nfc(std::string_view text, std::string& buffer) {
  std::vector<utf8proc_int32_t> work;
  std::size_t copied = 0;  // of `text`, into `buffer`
  std::size_t cut = 0;     // the last place where the text may be cut
  bool changed = false;
  for (std::size_t at = 0; at < text.size();) {
    if (const std::size_t plain = ascii_run(text, at); plain > 0) {
      at += plain;
      cut = at - 1;
      continue;
    }
    const std::size_t here = at;
    if (nfc_cuts_before(next_code_point(text, at))) {
      cut = here;
      continue;
    }
    std::size_t end = at;  // behind the last character that the long way is needed for
    while (end < text.size()) {
      std::size_t next = end;
      if (nfc_cuts_before(next_code_point(text, next))) break;
      end = next;
    }
    if (!changed) buffer.clear();
    changed = true;
    buffer.append(text.substr(copied, cut - copied));
    compose(text.substr(cut, end - cut), work, buffer);
    copied = cut = at = end;
  }
  if (!changed) return text;
  buffer.append(text.substr(copied));
  return buffer;
}

}  // namespace annulus
