#include "io/file.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>
#include "core/check.h"
#include "core/gigabytes.h"

namespace annulus {
namespace {

// The kernel takes at most 2 GiB a call, and a slab bounds what one slow call can hold up.
constexpr std::int64_t kSlab = std::int64_t{64} << 20;

}  // namespace

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string shown(const std::string& name) {
  constexpr std::size_t kMost = 1000;
  std::string text = name.substr(0, kMost);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  return name.size() > kMost ? text + "..." : text;
}

void disk_full(const std::string& path, std::int64_t bytes_needed) {
  const std::string folder = folder_of(path);
  struct statvfs s {};
  const std::string free_bytes = statvfs(folder.c_str(), &s) == 0
                                     ? gigabytes(static_cast<double>(s.f_bavail) * s.f_frsize)
                                     : "an unknown amount";
  const std::string needed =
      bytes_needed > 0 ? gigabytes(static_cast<double>(bytes_needed)) + " needed, " : std::string();
  environment_error("disk full while writing " + path + ": " + needed + free_bytes + " free in " + folder +
                    "; free space or quota there, or write to another folder (run.dir)");
}

void system_error(const std::string& what, const std::string& path, int code) {
  if (code == ENOSPC || code == EDQUOT) disk_full(path, 0);
  std::string hint;
  if (code == EACCES || code == EPERM || code == EROFS) hint = "; make it accessible or use another folder";
  if (code == ENOENT) hint = "; create the folder or correct the path";
  if (code == ENOTDIR) hint = "; a part of the path is a file, not a folder: correct the path";
  environment_error("cannot " + what + " " + path + ": " + std::strerror(code) + hint);
}

File::File(File&& from) noexcept : fd_(std::exchange(from.fd_, -1)), path_(std::move(from.path_)) {}

File& File::operator=(File&& from) noexcept {
  std::swap(fd_, from.fd_);
  std::swap(path_, from.path_);
  return *this;
}

File::~File() {
  if (fd_ >= 0 && ::close(fd_) != 0) std::fprintf(stderr, "warning: closing %s failed\n", path_.c_str());
}

File File::open_for_reading(const std::string& path) {
  // Without O_NONBLOCK a pipe of that name would hang here.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int code = errno;
    if (code == ENOENT || code == ENOTDIR) input_error("there is no file " + path + "; correct the path");
    system_error("open", path, code);
  }
  File file(fd, path);
  struct stat s {};
  if (::fstat(fd, &s) != 0) system_error("look at", path, errno);
  if (!S_ISREG(s.st_mode)) input_error(path + " is not a regular file; give the path of one");
  return file;
}

File File::open_for_writing(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) system_error("open for writing", path, errno);
  return {fd, path};
}

File File::create(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) system_error("create", path, errno);
  return {fd, path};
}

std::int64_t File::size() const {
  struct stat s {};
  if (::fstat(fd_, &s) != 0) system_error("look at", path_, errno);
  return s.st_size;
}

void File::read(std::int64_t offset, std::int64_t bytes, void* to) const {
  for (std::int64_t done = 0; done < bytes;) {
    const ssize_t n = ::pread(fd_, static_cast<char*>(to) + done,
                              static_cast<std::size_t>(std::min(kSlab, bytes - done)), offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) system_error("read", path_, errno);
    if (n == 0)
      input_error(path_ + " ends at byte " + std::to_string(offset + done) + " where " +
                  std::to_string(bytes - done) + " more were expected; it is truncated: copy it again");
    done += n;
  }
}

void File::write(std::int64_t offset, std::int64_t bytes, const void* from) const {
  for (std::int64_t done = 0; done < bytes;) {
    const ssize_t n = ::pwrite(fd_, static_cast<const char*>(from) + done,
                               static_cast<std::size_t>(std::min(kSlab, bytes - done)), offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == ENOSPC || errno == EDQUOT)) disk_full(path_, bytes - done);
    if (n < 0) system_error("write", path_, errno);
    done += n;
  }
}

void File::reserve(std::int64_t bytes) const {
  if (bytes == 0) return;
  // Not posix_fallocate: where the file system cannot reserve, the C library would write to every block.
  int code = 0;
  do {
    code = ::fallocate(fd_, 0, 0, bytes) == 0 ? 0 : errno;
  } while (code == EINTR);
  if (code == 0) return;
  if (code == ENOSPC || code == EDQUOT) disk_full(path_, bytes);
  if (code == EFBIG)
    environment_error("cannot write " + path_ + ": " + gigabytes(static_cast<double>(bytes)) +
                      " is more than the file size limit; raise it (ulimit -f) or use another file system");
  if (code != EOPNOTSUPP && code != ENOSYS) system_error("reserve space for", path_, code);
  struct statvfs s {};
  if (::fstatvfs(fd_, &s) != 0) system_error("look at the free space for", path_, errno);
  struct stat own {};
  if (::fstat(fd_, &own) != 0) system_error("look at", path_, errno);
  const double free_bytes = static_cast<double>(s.f_bavail) * static_cast<double>(s.f_frsize) +
                            static_cast<double>(own.st_blocks) * 512.0;
  if (free_bytes < static_cast<double>(bytes)) disk_full(path_, bytes);
}

void File::sync() const {
  if (::fsync(fd_) != 0) system_error("sync", path_, errno);
}

void sync_folder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) system_error("open folder", folder, errno);
  const File held(fd, folder);
  // Some network file systems have no sync of folders; there the rename is the server's promise.
  if (::fsync(fd) != 0 && errno != EINVAL && errno != EOPNOTSUPP) system_error("sync folder", folder, errno);
}

void rename_durably(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) system_error("rename " + from + " to", to, errno);
  sync_folder(folder_of(to));
}

std::string read_text(const std::string& path, std::int64_t limit) {
  const File file = File::open_for_reading(path);
  const std::int64_t size = file.size();
  if (size > limit)
    input_error(path + " has " + std::to_string(size) + " bytes; at most " + std::to_string(limit) +
                " are sensible for such a file: it is not what its name says");
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read(0, size, text.data());
  return text;
}

}  // namespace annulus
