// A rank's part of a text, in pieces.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include "data/byte_stream.h"

namespace annulus {

/// The pieces of a file that begin in [from, to), where a text begins at 0 and wherever it may be cut.
/// Memory: a piece, which is no longer than a block and what follows it up to the next such place.
class TextPieces {
 public:
  /// Whether the text may be cut at byte `at`, which follows a \n; at least 8 bytes follow, or the text ends.
  using MayCut = std::function<bool(std::string_view text, std::size_t at)>;
  static constexpr std::int64_t kBlock = std::int64_t{4} << 20;

  /// `size`: of the file, decompressed.
  TextPieces(const std::string& path, std::int64_t size, std::int64_t from, std::int64_t to, Compression,
             MayCut, std::int64_t block = kBlock);
  /// False when there is no further piece.
  bool next();
  std::string_view text() const { return text_; }
  std::string_view behind() const { return behind_; }  // the character that follows; empty at the end
  std::int64_t at() const { return at_; }              // its first byte in the file
  bool last() const { return behind_.empty(); }

 private:
  /// The first place at or behind `from` and before `limit` where the text may be cut, else `limit`. `keep`:
  /// the bytes before it are wanted.
  std::int64_t cut(std::int64_t from, std::int64_t limit, bool keep);
  std::int64_t end_of_buffer() const { return buffer_at_ + static_cast<std::int64_t>(buffer_.size()); }
  bool fill_to(std::int64_t end);  // false when the file ends before
  void drop_to(std::int64_t begin);

  std::unique_ptr<ByteStream> in_;
  std::string path_;
  std::int64_t size_, to_, block_;
  MayCut may_cut_;
  std::string buffer_;
  std::int64_t buffer_at_ = 0;  // the file's byte that buffer_[0] is
  std::int64_t begin_ = 0;      // of the next piece
  std::int64_t at_ = 0;
  std::string_view text_, behind_;
};

}  // namespace annulus
