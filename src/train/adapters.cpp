#include "train/adapters.h"
#include <algorithm>
#include <filesystem>
#include "config/values.h"
#include "core/check.h"
#include "io/adapter.h"
#include "train/snapshot.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : " ") + n;
  return text;
}

/// run.lora is that of the file, or nothing was given and it becomes so.
void settle(const LoraConfig& file, const ModelConfig& model, const std::string& path, RunConfig& run) {
  for (const Target t : file.targets)
    if (!has_target(model, t))
      input_error(path + " holds adapters of " + name_of(t) +
                  ", which no layer of the model of model.path has; the adapters must be of that model");
  if (run.lora.rank > 0) {
    const LoraConfig asked = lora_config(run.lora, model);
    const auto same = [&](const char* key, const std::string& mine, const std::string& theirs) {
      if (mine != theirs)
        usage_error(std::string("lora.") + key + " is " + mine + ", and the adapters of " + path + " have " +
                    theirs + "; leave the lora keys out to take them as they are");
    };
    same("rank", std::to_string(asked.rank), std::to_string(file.rank));
    same("alpha", shortest(asked.alpha), shortest(file.alpha));
    same("rslora", asked.rslora ? "true" : "false", file.rslora ? "true" : "false");
    same("targets", joined(asked.target_names()), joined(file.target_names()));
    return;
  }
  run.lora.rank = file.rank;
  run.lora.alpha = file.alpha;
  run.lora.rslora = file.rslora;
  run.lora.targets = file.target_names();
}

std::vector<Unit> adapter_units(const ModelConfig& model, const LoraConfig& lora) {
  std::vector<Unit> units = make_units(model, lora);
  units.erase(units.begin(), units.begin() + base_units(model));
  return units;
}

std::int64_t parameters_of(const std::vector<Unit>& units) {
  std::int64_t n = 0;
  for (const Unit& unit : units)
    for (const Parameter& p : unit.parameters) n += p.size();
  return n;
}

}  // namespace

std::unique_ptr<WeightSource> open_start(const ModelConfig& model, RunConfig& run) {
  const std::string& path = run.checkpoint.resume;
  if (!is_adapter_folder(path)) return nullptr;
  std::unique_ptr<WeightSource> adapters = open_adapter(path);
  settle(adapter_of(adapters->config_json(), adapters->tensors(), path), model, path, run);
  return adapters;
}

void settle_lora(const H5Reader& reader, const ModelConfig& model, const std::string& path, RunConfig& run) {
  const auto found = reader.facts().find(kAdapterFact);
  if (found == reader.facts().end()) {
    if (run.lora.rank > 0)
      usage_error("lora.rank is " + std::to_string(run.lora.rank) + ", and " + path +
                  " holds all weights and no adapters; leave lora.rank out");
    return;
  }
  std::vector<StoredTensor> tensors;
  const std::string group = "/model/";
  for (const DatasetSpec& d : reader.datasets())
    if (d.dataset.starts_with(group)) tensors.push_back({d.dataset.substr(group.size()), d.shape, "F32"});
  settle(adapter_of(found->second, tensors, path), model, path, run);
}

void check_adapters(const WeightSource& source, const ModelConfig& model, const LoraConfig& lora,
                    const std::string& path) {
  std::size_t count = 0;
  for (const Unit& unit : adapter_units(model, lora))
    for (const Parameter& p : unit.parameters) {
      ++count;
      const auto found = std::find_if(source.tensors().begin(), source.tensors().end(),
                                      [&](const StoredTensor& t) { return t.name == p.name; });
      if (found == source.tensors().end())
        input_error(path + ": tensor " + p.name +
                    " is missing; every layer of the model must have the same adapters");
      if (found->shape != p.shape)
        input_error(path + ": tensor " + p.name +
                    " has another shape than the model of model.path makes it; "
                    "the adapters must be of that model");
    }
  if (count != source.tensors().size())
    input_error(path + " holds " + std::to_string(source.tensors().size()) +
                " tensors, and the adapters of a " + model.model_type + " model of " +
                std::to_string(model.L) + " layers are " + std::to_string(count) +
                "; the adapters must be of the model of model.path");
}

std::string base_fingerprint(Comm& world, const ModelSource& model, const RunConfig& run) {
  if (run.lora.rank == 0) return {};
  if (!model.weights) return "random weights of seed " + std::to_string(run.train.seed);
  return base_fingerprint(world, *model.weights, model.config);
}

std::string base_fingerprint(Comm& world, WeightSource& source, const ModelConfig& model) {
  constexpr std::int64_t kMost = 4096, kLength = 256;  // tensors, elements from the middle of each
  std::string print;
  agreed(world, "sampling the base weights", [&] {
    if (world.rank() != 0) return;
    std::string all;
    std::vector<float> values(kLength);
    std::int64_t tensors = 0, number = 0;
    const std::vector<Unit> units = make_units(model);
    for (const Unit& unit : units) tensors += static_cast<std::int64_t>(unit.parameters.size());
    // A stride would meet the same matrix of every layer; a large odd number meets all kinds.
    const std::int64_t every = (tensors + kMost - 1) / kMost;
    for (const Unit& unit : units)
      for (const Parameter& p : unit.parameters) {
        if (number++ * 7919 % tensors % every != 0) continue;
        const std::int64_t n = std::min(kLength, p.size());
        source.read(p.name, (p.size() - n) / 2, n, make_tensor("sample", values.data(), DType::f32, {n}));
        all += p.name;
        all.append(reinterpret_cast<const char*>(values.data()), static_cast<std::size_t>(n) * sizeof(float));
      }
    print = fingerprint(all);
  });
  world.broadcast(print, 0);
  return print;
}

void check_base(const std::map<std::string, std::string>& facts, const std::string& path,
                const std::string& base_print, const std::string& base_path) {
  const auto found = facts.find(kBasePrintFact);
  if (found != facts.end() && found->second == base_print) return;
  input_error("the adapters of " + path + " were trained on other base weights than those of " + base_path +
              "; give model.path the model that they belong to");
}

std::map<std::string, std::string> adapter_facts(const RunConfig& run, const ModelConfig& model,
                                                 const std::string& base_print) {
  const std::string base = fs::absolute(run.model.path).lexically_normal();
  return {{kAdapterFact, adapter_json(lora_config(run.lora, model), model, base)},
          {kBaseFact, base},
          {kBasePrintFact, base_print}};
}

std::string describe_adapters(const ModelConfig& model, const LoraConfig& lora) {
  const std::vector<Unit> adapters = adapter_units(model, lora);
  std::int64_t matrices = 0;  // an A and a B each; of a stack as many as there are experts
  for (const Unit& unit : adapters)
    for (const Parameter& p : unit.parameters) matrices += p.shape.size() == 3 ? p.shape[0] : 1;
  const std::int64_t trained = parameters_of(adapters);
  return "LoRA of " + describe(lora) + ": " + std::to_string(matrices / 2) + " matrices adapted, " +
         std::to_string(trained) + " of " + std::to_string(trained + parameters_of(make_units(model))) +
         " parameters trained";
}

}  // namespace annulus
