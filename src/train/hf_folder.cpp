#include "train/hf_folder.h"
#include <filesystem>
#include <nlohmann/json.hpp>
#include "io/checkpoint.h"
#include "io/hf_export.h"
#include "train/adapters.h"
#include "train/setup.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
constexpr const char* kTypesFact = "source_types";
constexpr const char* kFolderFact = "source_folder";  // import writes the same
const std::string kModel = "/model/";

/// The name that a dtype of config.json has in safetensors.
std::string stored_type(const std::string& dtype) {
  if (dtype == "bfloat16") return "BF16";
  return dtype == "float16" ? "F16" : "F32";
}

}  // namespace

std::map<std::string, std::string> source_facts(const ModelSource& source, const std::string& model_path,
                                                const std::vector<Unit>& units) {
  // Most models have one type: it is the entry "", and exceptions follow by name.
  Json types = {{"", stored_type(source.config.dtype)}};
  if (source.weights) {
    std::map<std::string, std::string> stored;
    std::map<std::string, std::int64_t> count;
    for (const StoredTensor& t : source.weights->tensors()) stored[t.name] = t.dtype;
    for (const Unit& unit : units)
      for (const Parameter& p : unit.parameters) ++count[stored[p.name]];
    std::string most;
    for (const auto& [type, n] : count)
      if (most.empty() || n > count[most]) most = type;
    types[""] = most;
    for (const Unit& unit : units)
      for (const Parameter& p : unit.parameters)
        if (stored[p.name] != most) types[p.name] = stored[p.name];
  }
  std::map<std::string, std::string> facts = {{kTypesFact, types.dump()}};
  if (fs::is_directory(model_path)) facts[kFolderFact] = fs::absolute(model_path).lexically_normal();
  return facts;
}

void export_folder(Comm& world, const std::string& h5_path, const std::string& folder,
                   const std::function<void()>& beat) {
  const std::unique_ptr<H5Reader> reader = open_h5(h5_path);
  if (reader->facts().contains(kAdapterFact)) return export_adapters(world, h5_path, folder, beat);
  const std::unique_ptr<WeightSource> weights = open_weights(h5_path);
  const auto fact = [&](const char* name) {
    const auto found = reader->facts().find(name);
    return found == reader->facts().end() ? std::string() : found->second;
  };
  const Json types = Json::parse(fact(kTypesFact), nullptr, false);
  ExportRequest request{
      .folder = folder, .source_folder = "", .config_json = weights->config_json(), .tensors = {}};
  if (std::int64_t there = world.rank() == 0 && fs::is_directory(fact(kFolderFact)) ? 1 : 0;
      world.max(there) > 0)
    request.source_folder = fact(kFolderFact);
  for (const StoredTensor& t : weights->tensors()) {
    StoredTensor out = t;
    for (const std::string& name : {std::string(), t.name})
      if (types.is_object() && types.contains(name) && types[name].is_string()) out.dtype = types[name];
    request.tensors.push_back(out);
  }
  export_hf(world, request,
            [&](const std::string& name, std::int64_t from, std::int64_t count, const Tensor& to) {
              reader->read(kModel + name, from, count, to);
              beat();
            });
}

}  // namespace annulus
