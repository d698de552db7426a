#include "data/byte_stream.h"
#include <zlib.h>
#include <zstd.h>
#include <algorithm>
#include <fstream>
#include <string_view>
#include <vector>
#include "core/check.h"

namespace annulus {
namespace {

constexpr std::int64_t kBlock = std::int64_t{1} << 20;

class PlainBytes : public ByteStream {
 public:
  explicit PlainBytes(const std::string& path) : in_(path, std::ios::binary), path_(path) {
    if (!in_)
      environment_error("cannot read " + path + "; check that it exists and may be read on every node");
  }
  std::int64_t read(char* to, std::int64_t most) override {
    in_.read(to, static_cast<std::streamsize>(most));
    const std::int64_t got = in_.gcount();
    if (in_.bad()) environment_error("cannot read " + path_ + " at byte " + std::to_string(at_ + got));
    at_ += got;
    return got;
  }
  void skip(std::int64_t bytes) override {
    in_.seekg(static_cast<std::streamoff>(bytes), std::ios::cur);
    at_ += bytes;
  }

 private:
  std::ifstream in_;
  std::string path_;
  std::int64_t at_ = 0;
};

/// What both decompressors share: blocks of the file, and their sentences.
class Compressed : public ByteStream {
 protected:
  Compressed(const std::string& path, const char* kind)
      : file_(path), path_(path), kind_(kind), block_(static_cast<std::size_t>(kBlock)) {}
  /// The next block; false at the end of the file.
  bool fill() {
    file_at_ += have_;
    have_ = file_.read(block_.data(), kBlock);
    return have_ > 0;
  }
  [[noreturn]] void truncated() const {
    input_error("the data file " + path_ + " is cut off: its " + kind_ +
                " data stop in the middle, at byte " + std::to_string(file_at_ + have_) +
                " of the file; get it whole");
  }
  /// `left`: bytes of the block that were not taken.
  [[noreturn]] void damaged(const std::string& why, std::size_t left) const {
    input_error("the data file " + path_ + " is damaged at byte " +
                std::to_string(file_at_ + have_ - static_cast<std::int64_t>(left)) + ": " + why +
                "; get it again");
  }

  PlainBytes file_;
  std::string path_, kind_;
  std::vector<char> block_;
  std::int64_t file_at_ = 0, have_ = 0;  // of the block: its place in the file, and its bytes
};

class GzipBytes : public Compressed {
 public:
  explicit GzipBytes(const std::string& path) : Compressed(path, "gzip") {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&z_, MAX_WBITS + kGzipOnly) != Z_OK) fail("inflateInit2", "no memory");
  }
  ~GzipBytes() override { inflateEnd(&z_); }

  std::int64_t read(char* to, std::int64_t most) override {
    std::int64_t done = 0;
    while (done < most && refill()) {
      const auto room = static_cast<uInt>(std::min(most - done, kBlock));
      z_.next_out = reinterpret_cast<Bytef*>(to + done);
      z_.avail_out = room;
      const int code = inflate(&z_, Z_NO_FLUSH);
      done += room - z_.avail_out;
      if (code == Z_STREAM_END)
        inside_ = false;
      else if (code != Z_OK && code != Z_BUF_ERROR)
        damaged(z_.msg != nullptr ? z_.msg : "it is no gzip data", z_.avail_in);
    }
    return done;
  }

 private:
  /// Input for the decompressor; false when the file has ended where it may.
  bool refill() {
    if (z_.avail_in == 0) {
      if (!fill()) {
        if (inside_) truncated();
        return false;
      }
      z_.next_in = reinterpret_cast<Bytef*>(block_.data());
      z_.avail_in = static_cast<uInt>(have_);
    }
    if (inside_) return true;
    // Between members, and behind the last one, there may be zeros (tapes and block devices pad so).
    while (z_.avail_in > 0 && *z_.next_in == 0) ++z_.next_in, --z_.avail_in;
    if (z_.avail_in == 0) return refill();
    if (inflateReset(&z_) != Z_OK) fail("inflateReset", "no stream");
    inside_ = true;
    return true;
  }

  z_stream z_{};
  bool inside_ = true;  // a member has begun and not ended
};

class ZstdBytes : public Compressed {
 public:
  explicit ZstdBytes(const std::string& path) : Compressed(path, "zstd"), z_(ZSTD_createDStream()) {
    if (z_ == nullptr) fail("ZSTD_createDStream", "no memory");
  }
  ~ZstdBytes() override { ZSTD_freeDStream(z_); }

  std::int64_t read(char* to, std::int64_t most) override {
    ZSTD_outBuffer out{to, static_cast<std::size_t>(most), 0};
    while (out.pos < out.size) {
      if (in_.pos == in_.size && !full_) {
        if (!fill()) {
          if (inside_) truncated();
          break;
        }
        in_ = {block_.data(), static_cast<std::size_t>(have_), 0};
      }
      const std::size_t before = out.pos;
      const std::size_t code = ZSTD_decompressStream(z_, &out, &in_);
      if (ZSTD_isError(code) != 0) damaged(ZSTD_getErrorName(code), in_.size - in_.pos);
      inside_ = code != 0;
      // What fills the output exactly may have left more inside the decompressor.
      full_ = inside_ && out.pos == out.size && out.pos > before;
    }
    return static_cast<std::int64_t>(out.pos);
  }

 private:
  ZSTD_DStream* z_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool inside_ = false;  // a frame has begun and not ended
  bool full_ = false;    // ask the decompressor for more before it is given more
};

}  // namespace

void ByteStream::skip(std::int64_t bytes) {
  std::vector<char> passed(static_cast<std::size_t>(std::min(bytes, kBlock)));
  while (bytes > 0) {
    const std::int64_t got = read(passed.data(), std::min(bytes, kBlock));
    if (got == 0) return;
    bytes -= got;
  }
}

Compression compression_of(const std::string& path) {
  char head[4] = {};
  PlainBytes(path).read(head, 4);
  const std::string_view magic(head, 4);
  if (magic.substr(0, 2) == "\x1f\x8b") return Compression::gzip;
  return magic == "\x28\xb5\x2f\xfd" ? Compression::zstd : Compression::none;
}

std::unique_ptr<ByteStream> open_bytes(const std::string& path, Compression compression) {
  if (compression == Compression::gzip) return std::make_unique<GzipBytes>(path);
  if (compression == Compression::zstd) return std::make_unique<ZstdBytes>(path);
  return std::make_unique<PlainBytes>(path);
}

std::int64_t decompressed_size(const std::string& path, Compression compression) {
  const std::unique_ptr<ByteStream> in = open_bytes(path, compression);
  std::vector<char> block(static_cast<std::size_t>(kBlock));
  std::int64_t size = 0;
  while (const std::int64_t got = in->read(block.data(), kBlock)) size += got;
  return size;
}

}  // namespace annulus
