#include "data/text_pieces.h"
#include <algorithm>
#include "core/check.h"

namespace annulus {
namespace {

constexpr std::int64_t kRead = std::int64_t{1} << 20;
constexpr std::int64_t kAhead = 8;  // bytes of two characters

std::size_t character_length(char first) {
  const auto lead = static_cast<unsigned char>(first);
  return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

}  // namespace

TextPieces::TextPieces(const std::string& path, std::int64_t size, std::int64_t from, std::int64_t to,
                       Compression compression, MayCut may_cut, std::int64_t block)
    : in_(open_bytes(path, compression)),
      path_(path),
      size_(size),
      to_(std::min(to, size)),
      block_(block),
      may_cut_(std::move(may_cut)) {
  if (from == 0) return;
  buffer_at_ = from - 1;  // whose byte says whether a line begins at `from`
  in_->skip(buffer_at_);
  begin_ = cut(from, to_, false);
}

bool TextPieces::next() {
  if (begin_ >= to_) return false;
  drop_to(begin_);
  at_ = begin_;
  begin_ = cut(std::min(begin_ + block_, to_), size_, true);
  fill_to(begin_);
  const std::string_view all = buffer_;
  const auto end = static_cast<std::size_t>(begin_ - buffer_at_);
  text_ = all.substr(0, end);
  behind_ = begin_ < size_ ? all.substr(end, character_length(all[end])) : std::string_view();
  return true;
}

std::int64_t TextPieces::cut(std::int64_t from, std::int64_t limit, bool keep) {
  for (std::int64_t at = from; at < limit;) {
    if (!fill_to(at)) return limit;
    const std::size_t newline = buffer_.find('\n', static_cast<std::size_t>(at - 1 - buffer_at_));
    if (newline == std::string::npos) {
      at = end_of_buffer() + 1;
      if (!keep) drop_to(at - 1);
      continue;
    }
    at = buffer_at_ + static_cast<std::int64_t>(newline) + 1;
    if (at >= limit) return limit;
    fill_to(std::min(at + kAhead, size_));
    if (may_cut_(buffer_, static_cast<std::size_t>(at - buffer_at_))) return at;
    ++at;
  }
  return limit;
}

bool TextPieces::fill_to(std::int64_t end) {
  while (end_of_buffer() < end) {
    const std::int64_t have = end_of_buffer(), count = std::min(kRead, size_ - have);
    if (count <= 0) return false;
    const std::size_t old = buffer_.size();
    buffer_.resize(old + static_cast<std::size_t>(count));
    if (in_->read(buffer_.data() + old, count) != count)
      environment_error("cannot read " + path_ + " at byte " + std::to_string(have) +
                        "; it may have been cut while it was read");
  }
  return true;
}

void TextPieces::drop_to(std::int64_t begin) {
  buffer_.erase(0, static_cast<std::size_t>(begin - buffer_at_));
  buffer_at_ = begin;
}

}  // namespace annulus
