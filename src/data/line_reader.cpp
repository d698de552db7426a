#include "data/line_reader.h"
#include <algorithm>
#include "core/check.h"

namespace annulus {
namespace {

constexpr std::int64_t kBlock = std::int64_t{4} << 20;

}  // namespace

LineReader::LineReader(const std::string& path, std::int64_t size, std::int64_t from, std::int64_t to,
                       Compression compression)
    : in_(open_bytes(path, compression)), path_(path), size_(size), to_(std::min(to, size)) {
  // A line begins at `from` when the byte before it ends a line: so start one byte earlier and drop a line.
  buffer_at_ = std::max<std::int64_t>(from - 1, 0);
  in_->skip(buffer_at_);
  if (from > 0) {
    next();
    number_ = 0;
  }
}

bool LineReader::fill() {
  const std::int64_t have = buffer_at_ + static_cast<std::int64_t>(buffer_.size());
  const std::int64_t count = std::min(kBlock, size_ - have);
  if (count <= 0) return false;
  const std::size_t old = buffer_.size();
  buffer_.resize(old + static_cast<std::size_t>(count));
  const std::int64_t got = in_->read(buffer_.data() + old, count);
  if (size_ == kUnknown && got < count)
    size_ = have + got;
  else if (got != count)
    environment_error("cannot read " + path_ + " at byte " + std::to_string(have) +
                      "; it may have been cut while it was read");
  buffer_.resize(old + static_cast<std::size_t>(got));
  return got > 0;
}

bool LineReader::next() {
  at_ = buffer_at_ + static_cast<std::int64_t>(used_);
  if (at_ >= to_) return false;
  std::size_t end = buffer_.find('\n', used_);
  while (end == std::string::npos) {
    buffer_.erase(0, used_);
    buffer_at_ += static_cast<std::int64_t>(used_);
    used_ = 0;
    const std::size_t searched = buffer_.size();
    if (!fill()) break;
    end = buffer_.find('\n', searched);
  }
  if (at_ >= size_) return false;  // its size was not known
  const std::size_t begin = used_;
  const bool ended = end != std::string::npos;
  used_ = ended ? end + 1 : buffer_.size();
  line_ = std::string_view(buffer_).substr(begin, (ended ? end : buffer_.size()) - begin);
  if (!line_.empty() && line_.back() == '\r') line_.remove_suffix(1);
  if (at_ == 0 && line_.substr(0, 3) == "\xEF\xBB\xBF") {
    line_.remove_prefix(3);
    at_ = 3;
  }
  ++number_;
  return true;
}

}  // namespace annulus
