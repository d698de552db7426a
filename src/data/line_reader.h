// The lines of a byte range of a file, which may be compressed: bytes are then those of the text in it.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include "data/byte_stream.h"

namespace annulus {

/// Reads the lines that begin in [from, to) of a file; the last may end beyond. Memory is bounded by a block
/// and the longest line. A byte order mark at the start of the file is no part of its first line, nor is the
/// \r of a \r\n.
class LineReader {
 public:
  static constexpr std::int64_t kUnknown = INT64_MAX;
  /// `size`: of the file, decompressed; or kUnknown. Fails (environment) when it cannot be read.
  LineReader(const std::string& path, std::int64_t size, std::int64_t from, std::int64_t to,
             Compression = Compression::none);
  /// False when there is no further line.
  bool next();
  std::string_view line() const { return line_; }
  std::int64_t at() const { return at_; }          // the line's first byte in the file
  std::int64_t number() const { return number_; }  // lines of the range so far, this one included
  /// No line follows this one in the file.
  bool last() const { return buffer_at_ + static_cast<std::int64_t>(used_) >= size_; }

 private:
  bool fill();  // reads another block; false at the end of the file

  std::unique_ptr<ByteStream> in_;
  std::string path_;
  std::int64_t size_, to_;
  std::string buffer_;
  std::int64_t buffer_at_ = 0;  // the file's byte that buffer_[0] is
  std::size_t used_ = 0;        // bytes of the buffer that lines have taken
  std::string_view line_;
  std::int64_t at_ = 0, number_ = 0;
};

}  // namespace annulus
