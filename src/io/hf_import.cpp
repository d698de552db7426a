#include <filesystem>
#include <nlohmann/json.hpp>
#include "io/elements.h"
#include "io/h5_save.h"
#include "io/hf_export.h"
#include "io/import_facts.h"
#include "io/weights.h"

namespace annulus {

std::set<std::string> half_tensors(const std::map<std::string, std::string>& facts,
                                   const std::string& where) {
  const auto found = facts.find(kHalvesFact);
  if (found == facts.end()) return {};
  std::set<std::string> names;
  const auto flat = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth > 1)
      input_error(where + ": its fact " + kHalvesFact + " is not a list of names; make the file again");
    return true;
  };
  const nlohmann::json list = nlohmann::json::parse(found->second, flat, false);
  bool good = list.is_array();
  for (std::size_t i = 0; good && i < list.size(); ++i) {
    good = list[i].is_string();
    if (good) names.insert(list[i].get<std::string>());
  }
  if (!good)
    input_error(where + ": its fact " + kHalvesFact + " is not a list of names; make the file again");
  return names;
}

void import_hf(Comm& world, const std::string& folder, const std::string& out_h5) {
  std::unique_ptr<WeightSource> source;
  agreed(world, "open " + folder, [&] { source = open_weights(folder); });

  H5Job job{.path = out_h5, .kind = kStateFile, .specs = {}, .parts = {}, .facts = {}, .fail = ""};
  nlohmann::json halves = nlohmann::json::array();
  std::vector<std::int64_t> sizes;
  for (const StoredTensor& t : source->tensors()) {
    if (t.name.empty() || t.name.find('/') != std::string::npos || t.name.find('\0') != std::string::npos ||
        t.name.find_first_not_of('.') == std::string::npos)
      input_error(folder + ": tensor '" + shown(t.name) + "' has a name that HDF5 cannot hold; rename it");
    const H5Kind kind = t.dtype == "BF16" ? H5Kind::bf16 : H5Kind::f32;
    if (t.dtype == "F16") halves.push_back(t.name);
    job.specs.push_back({std::string(kModelGroup) + t.name, t.shape, kind});
    sizes.push_back(shape_size(t.shape) * bytes_of(kind));
  }
  job.facts[kConfigFact] = source->config_json();
  job.facts[kSourceFact] = std::filesystem::absolute(folder).lexically_normal().string();
  if (!halves.empty()) job.facts[kHalvesFact] = halves.dump();

  for_my_blocks(sizes, world.rank(), world.size(), [&](std::size_t i, std::int64_t at, std::int64_t bytes) {
    const StoredTensor& t = source->tensors()[i];
    const DType type = t.dtype == "BF16" ? DType::bf16 : DType::f32;
    const auto fill = [&source, &t, type](std::int64_t from, std::int64_t count, void* to) {
      source->read(t.name, from, count, make_tensor("import", to, type, {count}));
    };
    job.parts.push_back({i, at / bytes_of(type), bytes / bytes_of(type), nullptr, fill});
  });
  const std::unique_ptr<Save> save = begin_h5(world, std::move(job));
  save->write();
  save->finish();
}

}  // namespace annulus
