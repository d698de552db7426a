// Tokens of one rank on disk, while nobody knows yet how many there will be.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>
#include "io/file.h"

namespace annulus {

/// Written from front to back, then read by ranges. Its two files have no name (they are unlinked as soon as
/// they are made), so nothing stays behind however the process ends. Memory: about a megabyte.
class TokenSpool {
 public:
  /// The files are made beside `path`. Fails (environment) when they cannot be.
  TokenSpool(const std::string& path, int rank);
  /// A disk that is full is an environment error.
  void append(std::span<const std::int32_t> ids, std::span<const std::uint8_t> mask);
  /// Call once, after the last append().
  void flush();
  std::int64_t tokens() const { return flushed_ + static_cast<std::int64_t>(ids_.size()); }
  void read(std::int64_t from, std::int64_t count, std::int32_t* ids) const;
  void read(std::int64_t from, std::int64_t count, std::uint8_t* mask) const;

 private:
  File ids_file_, mask_file_;
  std::vector<std::int32_t> ids_;  // not written yet
  std::vector<std::uint8_t> mask_;
  std::int64_t flushed_ = 0;
};

}  // namespace annulus
