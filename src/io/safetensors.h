// The safetensors format: 8 bytes of header length n (little-endian), n bytes of JSON, then the data.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>
#include "io/elements.h"
#include "io/file.h"

namespace annulus {

struct SafeTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  Stored type = Stored::F32;
  std::int64_t offset = 0;  // of its bytes in the file
  std::int64_t bytes = 0;
};

struct SafeTensorsFile {
  File file;
  std::vector<SafeTensor> tensors;  // sorted by name

  const SafeTensor* find(const std::string& name) const;
};

/// Opens and checks all that the header says: the file's size to the byte, no gaps, overlaps or trailing
/// bytes, shapes that agree with byte counts, known types, no name twice. Types that weights cannot have are
/// refused by name. Input errors name file, byte or tensor.
SafeTensorsFile open_safetensors(const std::string& path);

/// The index of a sharded folder: tensor name and file name of each, sorted by name. File names are plain
/// names; no name twice.
std::vector<std::pair<std::string, std::string>> read_safetensors_index(const std::string& path);

/// Header bytes (length prefix included, padded to 8) of tensors that lie one after another; `offset` of each
/// is set to its place in the file.
std::string make_safetensors_header(std::vector<SafeTensor>& tensors);

}  // namespace annulus
