// The HDF5 library behind owners and checks. Included by src/io alone.
#pragma once
// Of 1.12 and later the calls and structs of 1.10 are used, which all of them carry.
#define H5_USE_110_API 1
#include <hdf5.h>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include "io/h5_file.h"

namespace annulus {

/// What the library said, in its own words: "H5Fopen: unable to lock file". Whoever knows the path and
/// whether it was read or written makes the user's sentence of it.
struct H5Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Silences the library's printing and turns plugins off; called before any other use.
void h5_start();
/// Throws H5Failure with the innermost reason of the library's error stack.
[[noreturn]] void h5_fail(std::string_view call);

/// HDF5 says "negative means failed" for hid_t, herr_t and htri_t alike: one function serves all.
template <class Code>
Code h5(Code code, std::string_view call) {
  if (code < 0) h5_fail(call);
  return code;
}

/// Owns one HDF5 id. The destructor never throws: it warns.
template <herr_t (*Close)(hid_t)>
class H5Owned {
 public:
  H5Owned() = default;
  H5Owned(hid_t id, std::string_view call) : id_(h5(id, call)) {}
  H5Owned(H5Owned&& from) noexcept : id_(std::exchange(from.id_, -1)) {}
  H5Owned& operator=(H5Owned&& from) noexcept {
    std::swap(id_, from.id_);
    return *this;
  }
  ~H5Owned() {
    if (id_ >= 0 && Close(id_) < 0) std::fputs("warning: HDF5 close failed\n", stderr);
  }
  hid_t id() const { return id_; }
  /// Closes now, with the error told.
  void close(std::string_view call) { h5(Close(std::exchange(id_, -1)), call); }

 private:
  hid_t id_ = -1;
};

using H5File = H5Owned<&H5Fclose>;
using H5Set = H5Owned<&H5Dclose>;
using H5Plan = H5Owned<&H5Pclose>;
using H5Space = H5Owned<&H5Sclose>;
using H5Type = H5Owned<&H5Tclose>;
using H5Attribute = H5Owned<&H5Aclose>;
using H5Group = H5Owned<&H5Gclose>;
using H5Object = H5Owned<&H5Oclose>;

/// The library's type; bf16 is a real HDF5 float type, which h5dump prints.
H5Type h5_type(H5Kind);

/// String attributes: fixed length, UTF-8, padded with zeros. They lie in dense storage, so they may pass 64
/// KB.
void h5_write_text(hid_t object, const std::string& name, const std::string& text);
/// Refuses anything but such a string of at most `limit` bytes.
std::string h5_read_text(hid_t object, const std::string& name, std::size_t limit);
/// One 64-bit integer.
void h5_create_number(hid_t object, const char* name, std::int64_t value);
void h5_set_number(hid_t object, const char* name, std::int64_t value);
std::int64_t h5_read_number(hid_t object, const char* name);

}  // namespace annulus
