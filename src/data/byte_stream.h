// The bytes of a data file from front to back, decompressed where the file is compressed.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace annulus {

enum class Compression : std::uint8_t { none, gzip, zstd };

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Up to `most` bytes, fewer only at the end. Fails (environment) where the file cannot be read, (input)
  /// where compressed bytes are damaged or stop in the middle. Members that follow one another are one text.
  virtual std::int64_t read(char* to, std::int64_t most) = 0;
  /// Passes over bytes; fewer at the end.
  virtual void skip(std::int64_t bytes);
};

/// What the first bytes of the file say.
Compression compression_of(const std::string& path);
/// Memory: a block, and for zstd the window that the file was made with (128 MB at most).
std::unique_ptr<ByteStream> open_bytes(const std::string& path, Compression);
/// Reads all of a file: its size when decompressed.
std::int64_t decompressed_size(const std::string& path, Compression);

}  // namespace annulus
