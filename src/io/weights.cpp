#include "io/weights.h"
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include "io/checkpoint.h"
#include "io/elements.h"
#include "io/expert_names.h"
#include "io/import_facts.h"
#include "io/safetensors.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostConfig = std::int64_t{16} << 20;

/// config.json and model.safetensors, or the shards that model.safetensors.index.json lists.
class HuggingFaceFolder : public WeightSource {
 public:
  explicit HuggingFaceFolder(const std::string& folder) : folder_(folder) {
    const fs::path base(folder);
    config_ = read_text((base / "config.json").string(), kMostConfig);
    // The order in which transformers looks: one whole file first.
    const fs::path whole = base / "model.safetensors", index = base / "model.safetensors.index.json";
    std::error_code none;
    if (fs::exists(whole, none)) {
      files_.push_back(open_safetensors(whole.string()));
      for (const SafeTensor& t : files_[0].tensors) add(0, t);
    } else if (fs::exists(index, none)) {
      open_shards(base, index.string());
    } else {
      input_error(folder +
                  " has neither model.safetensors nor model.safetensors.index.json; weights in other "
                  "formats must be saved as safetensors first (transformers' save_pretrained does)");
    }
  }

  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  const std::string& config_json() const override { return config_; }
  bool has(const std::string& name) const override { return places_.contains(name); }

  void read(const std::string& name, std::int64_t from, std::int64_t count, const Tensor& to) override {
    const auto found = places_.find(name);
    if (found == places_.end()) input_error(folder_ + " holds no tensor '" + name + "'; the model needs it");
    const Place& p = found->second;
    const std::int64_t width = bytes_of(p.tensor.type);
    need(from >= 0 && count >= 0 && from <= p.tensor.bytes / width - count,
         "elements beyond the end of " + name);
    read_elements(files_[p.file].file, p.tensor.offset + from * width, p.tensor.type, count, to);
  }

 private:
  struct Place {
    std::size_t file;
    SafeTensor tensor;
  };

  void open_shards(const fs::path& base, const std::string& index) {
    std::map<std::string, std::size_t> number;
    for (const auto& [name, shard] : read_safetensors_index(index)) {
      const auto [at, is_new] = number.emplace(shard, files_.size());
      if (is_new) {
        std::error_code none;
        if (!fs::exists(base / shard, none))
          input_error(index + " names shard " + shard + " for tensor '" + shown(name) + "', but " + folder_ +
                      " does not hold it; copy that file as well");
        files_.push_back(open_safetensors((base / shard).string()));
      }
      const SafeTensor* t = files_[at->second].find(name);
      if (t == nullptr)
        input_error(index + " says that tensor '" + shown(name) + "' is in " + shard +
                    ", which does not hold it; "
                    "the index and the shards are not of one model: copy them again");
      add(at->second, *t);
    }
  }

  void add(std::size_t file, const SafeTensor& t) {
    tensors_.push_back({t.name, t.shape, name_of(t.type)});
    places_.emplace(t.name, Place{file, t});
  }

  std::string folder_, config_;
  std::vector<SafeTensorsFile> files_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, Place> places_;
};

/// /model of a weights file or a checkpoint.
class H5Weights : public WeightSource {
 public:
  explicit H5Weights(const std::string& path) : path_(path), reader_(open_h5(path)) {
    const auto& facts = reader_->facts();
    const auto config = facts.find(kConfigFact);
    if (config == facts.end())
      input_error(
          path +
          " holds no model configuration (config_json in /run); it was not made by import or training");
    config_ = config->second;
    const std::set<std::string> halves = half_tensors(facts, path);
    for (const DatasetSpec& d : reader_->datasets()) {
      if (!d.dataset.starts_with(kModelGroup)) continue;
      const std::string name = d.dataset.substr(kModelGroup.size());
      if (d.dtype != DType::f32 && d.dtype != DType::bf16)
        input_error(path + ": " + d.dataset + " is of type " + name_of(d.dtype) + ", which no weight has");
      const Stored type = halves.contains(name)   ? Stored::F16
                          : d.dtype == DType::f32 ? Stored::F32
                                                  : Stored::BF16;
      tensors_.push_back({name, d.shape, name_of(type)});
    }
    if (tensors_.empty())
      input_error(path + " holds no weights under /model; give a weights file or a checkpoint");
  }

  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  const std::string& config_json() const override { return config_; }
  bool has(const std::string& name) const override { return reader_->has(std::string(kModelGroup) + name); }
  void read(const std::string& name, std::int64_t from, std::int64_t count, const Tensor& to) override {
    reader_->read(std::string(kModelGroup) + name, from, count, to);
  }

 private:
  std::string path_, config_;
  std::unique_ptr<H5Reader> reader_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace

std::unique_ptr<WeightSource> open_weights(const std::string& path) {
  std::error_code none;
  if (fs::is_directory(path, none)) return stack_experts(std::make_unique<HuggingFaceFolder>(path));
  if (!fs::exists(path, none))
    input_error("there is no model at " + path + "; give a Hugging Face folder or an Annulus .h5 file");
  return std::make_unique<H5Weights>(path);
}

}  // namespace annulus
