// Plain files with 64-bit offsets: one descriptor, errors as sentences. HDF5 and safetensors data both pass
// through here; nothing in it is collective.
#pragma once
#include <cstdint>
#include <string>

namespace annulus {

/// Owns a descriptor. Moves, never copies; closing without a word is right for files that were synced or
/// read.
class File {
 public:
  File() = default;
  /// Takes over a descriptor.
  File(int descriptor, std::string path) : fd_(descriptor), path_(std::move(path)) {}
  /// Opens a regular file for reading; an input error when it is not there or not a regular file.
  static File open_for_reading(const std::string& path);
  /// Opens an existing file for writing.
  static File open_for_writing(const std::string& path);
  /// Makes an empty file, replacing what was there.
  static File create(const std::string& path);
  File(File&& from) noexcept;
  File& operator=(File&& from) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  int descriptor() const { return fd_; }
  std::int64_t size() const;
  /// All `bytes` from `offset`, or an input error that names the file and the byte where it ends.
  void read(std::int64_t offset, std::int64_t bytes, void* to) const;
  /// All `bytes`, or an environment error (a full disk says how much is free).
  void write(std::int64_t offset, std::int64_t bytes, const void* from) const;
  /// Reserves the first `bytes` of the file on the disk, so that writing them cannot meet a full disk. Where
  /// the file system cannot reserve, checks its free space instead.
  void reserve(std::int64_t bytes) const;
  void sync() const;

 private:
  int fd_ = -1;
  std::string path_;
};

/// Throws what a full disk means to the user: "disk full: 1.3 GB needed, 0.4 GB free in DIR; ...".
[[noreturn]] void disk_full(const std::string& path, std::int64_t bytes_needed);
/// Throws an environment error for a failed system call on a path; a full disk becomes disk_full().
[[noreturn]] void system_error(const std::string& what, const std::string& path, int code);

/// Makes a rename or a new entry in `folder` durable.
void sync_folder(const std::string& folder);
/// rename(2), then sync of the folder that holds it.
void rename_durably(const std::string& from, const std::string& to);
/// The whole text of a small regular file; an input error when it is larger than `limit`.
std::string read_text(const std::string& path, std::int64_t limit);
/// A name from a file as it may stand in a sentence: control characters as '?', and not endless.
std::string shown(const std::string& name);
/// The folder part of a path, "." when there is none.
std::string folder_of(const std::string& path);

}  // namespace annulus
