// Adapters as PEFT's folder, and merged into their base.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <vector>
#include "core/bf16.h"
#include "io/adapter.h"
#include "io/elements.h"
#include "io/expert_adapters.h"
#include "io/expert_names.h"
#include "io/hf_export.h"
#include "io/import_facts.h"
#include "train/adapters.h"
#include "train/hf_folder.h"
#include "train/weights_fill.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

std::string fact(const H5Reader& reader, const char* name) {
  const auto found = reader.facts().find(name);
  return found == reader.facts().end() ? std::string() : found->second;
}

/// The weights of a base with the adapters on it, range by range.
class Merged {
 public:
  Merged(WeightSource& base, WeightSource& adapters, const LoraConfig& lora)
      : base_(base), adapters_(adapters), lora_(lora) {
    for (const StoredTensor& t : adapters.tensors()) shapes_[t.name] = t.shape;
  }

  void read(const std::string& name, std::int64_t from, std::int64_t count, const Tensor& to) {
    const std::string adapter = adapter_name(lora_, name);
    const auto a = shapes_.find(adapter + ".lora_A.weight");
    if (a == shapes_.end()) return base_.read(name, from, count, to);
    const std::vector<std::int64_t>& b_shape = shapes_.at(adapter + ".lora_B.weight");
    // Rows of all experts one after another; of a plain matrix as of a single expert.
    const std::int64_t rows = b_shape[b_shape.size() - 2];
    const std::int64_t rank = b_shape.back(), columns = a->second.back();
    const bool gate_up = name.ends_with(name_of(Target::experts_gate_up));
    const auto scale = static_cast<float>(gate_up ? lora_.scale_of(Target::experts_gate_up) : lora_.scale());
    if (held_ != adapter) {
      a_ = values(adapters_, a->first, 0, shape_size(a->second));
      held_ = adapter;
    }
    std::vector<float> w = values(base_, name, from, count);
    // Rows that the range touches, the first and the last perhaps in part.
    const std::int64_t first = from / columns, last = (from + count + columns - 1) / columns;
    const std::vector<float> b =
        values(adapters_, adapter + ".lora_B.weight", first * rank, (last - first) * rank);
    std::vector<float> delta(static_cast<std::size_t>(columns));
    for (std::int64_t row = first; row < last; ++row) {
      std::fill(delta.begin(), delta.end(), 0.f);
      const float* of_expert = a_.data() + row / rows * rank * columns;
      for (std::int64_t k = 0; k < rank; ++k) {
        const float weight = b[static_cast<std::size_t>((row - first) * rank + k)];
        const float* a_row = of_expert + k * columns;
        for (std::int64_t c = 0; c < columns; ++c) delta[static_cast<std::size_t>(c)] += weight * a_row[c];
      }
      const std::int64_t begin = std::max(from, row * columns),
                         end = std::min(from + count, (row + 1) * columns);
      for (std::int64_t at = begin; at < end; ++at)
        w[static_cast<std::size_t>(at - from)] += scale * delta[static_cast<std::size_t>(at - row * columns)];
    }
    if (to.dtype == DType::f32)
      std::copy(w.begin(), w.end(), to.as<float>());
    else
      std::transform(w.begin(), w.end(), to.as<bf16>(), narrow);
  }

 private:
  static std::vector<float> values(WeightSource& source, const std::string& name, std::int64_t from,
                                   std::int64_t count) {
    std::vector<float> v(static_cast<std::size_t>(count));
    source.read(name, from, count, make_tensor("weights", v.data(), DType::f32, {count}));
    return v;
  }

  WeightSource& base_;
  WeightSource& adapters_;
  const LoraConfig& lora_;
  std::map<std::string, std::vector<std::int64_t>> shapes_;
  std::string held_;  // whose A is in a_
  std::vector<float> a_;
};

/// Where the files beside the weights are: the base itself, or the folder that it was imported from.
std::string files_of(Comm& world, const std::string& base) {
  const std::string folder = fs::is_directory(base) ? base : fact(*open_h5(base), kSourceFact);
  const std::int64_t there = world.rank() == 0 && fs::is_directory(folder) ? 1 : 0;
  return world.max(there) > 0 ? folder : "";
}

}  // namespace

void export_adapters(Comm& world, const std::string& h5_path, const std::string& folder,
                     const std::function<void()>& beat) {
  const std::unique_ptr<WeightSource> adapters = open_weights(h5_path);
  ExportRequest request{.folder = folder,
                        .source_folder = "",
                        .config_json = fact(*open_h5(h5_path), kAdapterFact),
                        .tensors = adapters->tensors(),
                        .config_name = kAdapterConfig,
                        .weights_name = "adapter_model"};
  request.shard_bytes = std::numeric_limits<std::int64_t>::max();  // PEFT reads one file
  std::map<std::string, Shape> stacks;
  for (StoredTensor& t : request.tensors) {
    if (t.shape.size() == 3) stacks[t.name] = t.shape;
    t.shape = matrix_shape(t.name, t.shape);
  }
  export_hf(world, request,
            [&](const std::string& name, std::int64_t from, std::int64_t count, const Tensor& to) {
              const ReadElements read = [&](std::int64_t at, std::int64_t n, const Tensor& into) {
                adapters->read(name, at, n, into);
              };
              if (stacks.contains(name) && name.ends_with(".lora_B.weight"))
                matrix_from_stack(stacks.at(name), read, from, count, to);
              else
                read(from, count, to);
              beat();
            });
}

void export_merged(Comm& world, const std::string& h5_path, const std::string& base,
                   const std::string& folder, const std::function<void()>& beat) {
  const std::unique_ptr<H5Reader> reader = open_h5(h5_path);
  const std::string json = fact(*reader, kAdapterFact);
  if (json.empty())
    usage_error("--merge is given, and " + h5_path +
                " holds a whole model and no adapters; leave --merge out");
  const std::unique_ptr<WeightSource> adapters = open_weights(h5_path);
  const LoraConfig lora = adapter_of(json, adapters->tensors(), h5_path);
  const std::string path = base.empty() ? fact(*reader, kBaseFact) : base;
  const std::unique_ptr<WeightSource> weights = open_weights(path);
  const ModelConfig model = parse_model_config(adapters->config_json(), h5_path);
  check_source(*weights, make_units(model), model, path);
  check_adapters(*adapters, model, lora, h5_path);
  check_base(reader->facts(), h5_path, base_fingerprint(world, *weights, model), path);
  ExportRequest request{.folder = folder,
                        .source_folder = files_of(world, path),
                        .config_json = adapters->config_json(),
                        .tensors = {}};
  std::map<std::string, SplitTensor> places;
  for (SplitTensor& t : split_experts(weights->tensors())) {
    request.tensors.push_back(t.tensor);
    places.emplace(t.tensor.name, t);
  }
  Merged merged(*weights, *adapters, lora);
  export_hf(world, request,
            [&](const std::string& name, std::int64_t from, std::int64_t count, const Tensor& to) {
              const SplitTensor& place = places.at(name);
              merged.read(place.from, place.at + from, count, to);
              beat();
            });
}

}  // namespace annulus
