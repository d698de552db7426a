// Named tensors in files: the one face of Hugging Face folders and Annulus .h5 files.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>
#include "core/tensor.h"

namespace annulus {

struct StoredTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string dtype;  // as the file says: "F32", "BF16", "F16"
};

/// Weights that can be read by element ranges. Opening checks everything about the files that can be checked
/// without reading the data (lengths, overlaps, types, names); errors are input errors that name file and
/// byte. Opening is made on every rank alike (a metadata read); `read` is local to a rank and makes no
/// collective call.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual const std::vector<StoredTensor>& tensors() const = 0;  // sorted by name
  virtual const std::string& config_json() const = 0;            // the model's config.json text
  virtual bool has(const std::string& name) const = 0;
  /// Elements [from, from + count) in row-major order, converted to `to`'s type (f32 or bf16, rounded to
  /// nearest even), into host memory of `count` elements.
  virtual void read(const std::string& name, std::int64_t from, std::int64_t count, const Tensor& to) = 0;
};

/// Opens a Hugging Face folder (config.json + *.safetensors; a layer's experts as stacks, expert_names.h) or
/// an Annulus .h5 (weights file or checkpoint).
std::unique_ptr<WeightSource> open_weights(const std::string& path);

}  // namespace annulus
