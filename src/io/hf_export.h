// Writing what from_pretrained loads.
#pragma once
#include <functional>
#include <string>
#include <vector>
#include "comm/comm.h"
#include "io/checkpoint.h"
#include "io/weights.h"

namespace annulus {

/// Writes a Hugging Face folder: config.json and every non-weight file of `source_folder` (when there is
/// one), weights as model.safetensors or in shards with an index, names and shapes as in the source, each
/// tensor in `dtype` ("F32", "BF16", "F16"). The ranks write their byte ranges side by side. Into
/// FOLDER.partial (replacing one that a killed export left), renamed when whole; an existing FOLDER is an
/// environment error unless it is empty, and so is one inside the source folder.
struct ExportRequest {
  std::string folder;
  std::string source_folder;                 // "" : none
  std::string config_json;                   // written as `config_name`; "" : the source folder's is copied
  std::vector<StoredTensor> tensors;         // with the dtype to write
  std::int64_t shard_bytes = 5'000'000'000;  // of tensors in one file; a larger tensor gets one of its own
  std::string config_name = "config.json";
  std::string weights_name = "model";  // of the safetensors files, before their numbers
};
/// `read(name, from, count, to)`: any rank can be asked for any range (from an H5Reader, say).
void export_hf(
    Comm& world, const ExportRequest&,
    const std::function<void(const std::string&, std::int64_t, std::int64_t, const Tensor&)>& read);

/// Converts a Hugging Face folder into one .h5 weights file, in parallel: BF16 stays bf16, F32 f32; F16
/// becomes f32, and the file remembers which tensors were, so that WeightSource::tensors() still says F16.
/// Its facts are "config_json" and "source_folder" (where export finds the non-weight files).
void import_hf(Comm& world, const std::string& folder, const std::string& out_h5);

}  // namespace annulus
