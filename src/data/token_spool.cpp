#include "data/token_spool.h"
#include <unistd.h>
#include "core/check.h"

namespace annulus {
namespace {

constexpr std::size_t kBuffered = std::size_t{1} << 18;  // tokens

File nameless(const std::string& path) {
  File file = File::create(path);
  if (::unlink(path.c_str()) != 0)
    environment_error("cannot remove " + path + "; see that its folder is writable");
  return file;
}

}  // namespace

TokenSpool::TokenSpool(const std::string& path, int rank)
    : ids_file_(nameless(path + ".ids-" + std::to_string(rank))),
      mask_file_(nameless(path + ".mask-" + std::to_string(rank))) {}

void TokenSpool::append(std::span<const std::int32_t> ids, std::span<const std::uint8_t> mask) {
  need(ids.size() == mask.size(), "ids and mask differ in length");
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  mask_.insert(mask_.end(), mask.begin(), mask.end());
  if (ids_.size() >= kBuffered) flush();
}

void TokenSpool::flush() {
  const auto count = static_cast<std::int64_t>(ids_.size());
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(std::int32_t));
  ids_file_.write(flushed_ * kWidth, count * kWidth, ids_.data());
  mask_file_.write(flushed_, count, mask_.data());
  flushed_ += count;
  ids_.clear();
  mask_.clear();
  if (ids_.capacity() > 2 * kBuffered) {  // after a long document
    ids_.shrink_to_fit();
    mask_.shrink_to_fit();
  }
}

void TokenSpool::read(std::int64_t from, std::int64_t count, std::int32_t* ids) const {
  need(from >= 0 && from + count <= flushed_, "tokens that are not in the spool");
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(std::int32_t));
  ids_file_.read(from * kWidth, count * kWidth, ids);
}

void TokenSpool::read(std::int64_t from, std::int64_t count, std::uint8_t* mask) const {
  need(from >= 0 && from + count <= flushed_, "tokens that are not in the spool");
  mask_file_.read(from, count, mask);
}

}  // namespace annulus
