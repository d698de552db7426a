#include "data/tokenizer/tokenizer.h"
#include <algorithm>
#include "core/check.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/unicode.h"

namespace annulus {
namespace {

std::unordered_map<std::string, std::int32_t> whole_words(const TokenizerFile& file) {
  std::unordered_map<std::string, std::int32_t> out;
  if (!file.ignore_merges) return out;
  for (const auto& [token, id] : file.vocabulary)
    if (const auto bytes = bytes_of_token(token)) out.emplace(*bytes, id);
  return out;
}

}  // namespace

Tokenizer::Tokenizer(const std::string& path) : Tokenizer(read_tokenizer_file(path), path) {}

Tokenizer::Tokenizer(const TokenizerFile& file, const std::string& where)
    : where_(where),
      nfc_(file.nfc),
      bpe_(file.bytes, file.merges, whole_words(file)),
      cuts_(file.splits, where),
      id_of_(file.vocabulary),
      before_(file.before),
      after_(file.after) {
  for (const SplitStep& s : file.splits)
    steps_.push_back({Pattern(s.expression, where), s.keep_matches, s.keep_gaps});
  const auto spells = [&](std::int32_t id, std::string text) {
    const auto at = static_cast<std::size_t>(id);
    if (at >= text_of_.size()) text_of_.resize(at + 1);
    text_of_[at] = std::move(text);
  };
  for (const auto& [token, id] : file.vocabulary) spells(id, bytes_of_token(token).value_or(token));
  std::string buffer;
  for (const AddedToken& token : file.added) {
    if (!file.vocabulary.contains(token.content)) spells(token.id, token.content);
    id_of_[token.content] = token.id;
    spelled_.add(token.content, token.id);
    lines_in_added_ = lines_in_added_ || token.content.find('\n') != std::string::npos;
    if (token.normalized)
      normalized_.add(nfc_ ? nfc(token.content, buffer) : token.content, token.id);
    else
      raw_.add(token.content, token.id);
  }
}

void Tokenizer::encode(std::string_view text, bool added, std::vector<std::int32_t>& to) {
  need(first_invalid_utf8(text) < 0, "a text to encode is not valid UTF-8");
  const auto gap = [&](std::string_view piece) {
    if (!piece.empty()) encode_normalized(nfc_ ? nfc(piece, normal_) : piece, added, to);
  };
  std::size_t at = 0;
  for (AddedTokens::Found token; added && raw_.find(text, at, token); at = token.end) {
    gap(text.substr(at, token.begin - at));
    to.push_back(token.id);
  }
  gap(text.substr(at));
}

void Tokenizer::encode(std::string_view text, std::span<const ByteRange> open,
                       std::span<const ByteRange> ranges, std::vector<std::int32_t>& to,
                       std::vector<std::uint8_t>& inside) {
  need(first_invalid_utf8(text) < 0, "a text to encode is not valid UTF-8");
  const auto gap = [&](std::size_t begin, std::size_t end) {
    if (begin == end) return;
    const std::string_view piece = text.substr(begin, end - begin);
    const std::size_t first = to.size();
    encode_normalized(nfc_ ? nfc(piece, normal_) : piece, false, to);
    mark(piece, begin, ranges, std::span(to).subspan(first), inside);
  };
  std::size_t at = 0;
  for (const ByteRange& o : open) {
    AddedTokens::Found token;
    for (std::size_t from = o.begin; spelled_.find(text.substr(0, o.end), from, token);
         from = at = token.end) {
      gap(at, token.begin);
      to.push_back(token.id);
      const auto holds = [&](const ByteRange& r) { return r.begin < token.end && token.begin < r.end; };
      inside.push_back(std::any_of(ranges.begin(), ranges.end(), holds) ? 1 : 0);
    }
  }
  gap(at, text.size());
}

/// The numbers of the tokens of a gap, which begins at byte `at` of the text.
void Tokenizer::mark(std::string_view gap, std::size_t at, std::span<const ByteRange> ranges,
                     std::span<const std::int32_t> ids, std::vector<std::uint8_t>& inside) {
  const std::size_t first = inside.size();
  inside.resize(first + ids.size(), 0);
  std::string buffer;
  // A place of the gap, in the bytes of its normal form, which the tokens spell.
  const auto normal_place = [&](std::size_t place) {
    const std::string_view before = gap.substr(0, std::clamp(place, at, at + gap.size()) - at);
    return nfc_ ? nfc(before, buffer).size() : before.size();
  };
  for (const ByteRange& r : ranges) {
    if (r.end <= at || r.begin >= at + gap.size()) continue;
    const std::size_t begin = normal_place(r.begin), end = normal_place(r.end);
    std::size_t place = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::size_t next = place + text_of_[static_cast<std::size_t>(ids[i])]->size();
      if (place < end && begin < next) inside[first + i] = 1;
      place = next;
    }
  }
}

void Tokenizer::encode_normalized(std::string_view text, bool added, std::vector<std::int32_t>& to) {
  std::size_t at = 0;
  for (AddedTokens::Found token; added && normalized_.find(text, at, token); at = token.end) {
    split(text.substr(at, token.begin - at), 0, to);
    to.push_back(token.id);
  }
  split(text.substr(at), 0, to);
}

void Tokenizer::split(std::string_view text, std::size_t step, std::vector<std::int32_t>& to) {
  if (text.empty()) return;
  if (step == steps_.size()) {
    bpe_.encode(text, to);
    return;
  }
  Step& s = steps_[step];
  std::size_t at = 0;
  for (Pattern::Match match; at < text.size() && s.pattern.find(text, at, match); at = match.end) {
    need(match.begin >= at && match.end > match.begin, "an expression matched no characters");
    if (s.keep_gaps) split(text.substr(at, match.begin - at), step + 1, to);
    if (s.keep_matches) split(text.substr(match.begin, match.end - match.begin), step + 1, to);
  }
  if (s.keep_gaps) split(text.substr(at), step + 1, to);
}

bool Tokenizer::cuts_at(std::string_view text, std::size_t at, bool added) {
  if (!cuts(added) || at == 0 || at >= text.size() || text[at - 1] != '\n') return false;
  if (added && (spelled_.may_begin(text[at]) || normalized_.may_begin(text[at]))) return false;
  constexpr std::size_t kTwo = 8;  // characters are no longer
  const std::string_view rest = text.substr(at, kTwo);
  const std::int64_t bad = first_invalid_utf8(rest);
  const std::size_t valid = bad < 0 ? rest.size() : static_cast<std::size_t>(bad);
  std::size_t next = 0;
  if (valid == 0) return false;
  const std::uint32_t first = next_code_point(rest, next);
  if (next >= valid) return false;
  const std::uint32_t second = next_code_point(rest, next);
  return nfc_cuts_before(first) && nfc_cuts_before(second) && cuts_.before(first);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string out;
  for (const std::int32_t id : ids) {
    const auto at = static_cast<std::size_t>(id);
    if (id < 0 || at >= text_of_.size() || !text_of_[at])
      input_error(where_ + ": has no token of id " + std::to_string(id) +
                  "; take the tokenizer that the ids were made with");
    out += *text_of_[at];
  }
  return out;
}

bool Tokenizer::is_added(const std::string& token) const {
  AddedTokens::Found found;
  return spelled_.find(token, 0, found) && found.begin == 0 && found.end == token.size();
}

std::optional<std::int32_t> Tokenizer::id_of(const std::string& token) const {
  const auto at = id_of_.find(token);
  return at == id_of_.end() ? std::nullopt : std::optional(at->second);
}

}  // namespace annulus
