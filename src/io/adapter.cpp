#include "io/adapter.h"
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include "core/check.h"
#include "io/file.h"
#include "io/safetensors.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t kMostConfig = std::int64_t{16} << 20;
constexpr const char* kTensors = "adapter_model.safetensors";
constexpr std::string_view kPrefix = "base_model.model.", kWeight = ".weight";
constexpr std::string_view kSides[] = {".lora_A.weight", ".lora_B.weight"};

class AdapterFolder : public WeightSource {
 public:
  explicit AdapterFolder(const std::string& folder)
      : path_((fs::path(folder) / kTensors).string()),
        config_(read_text((fs::path(folder) / kAdapterConfig).string(), kMostConfig)) {
    std::error_code none;
    if (!fs::exists(path_, none))
      input_error(
          folder + " holds no " + kTensors +
          "; adapters in other formats must be saved as safetensors first (PEFT's save_pretrained does)");
    file_ = open_safetensors(path_);
    for (const SafeTensor& t : file_.tensors) tensors_.push_back({t.name, t.shape, name_of(t.type)});
  }

  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  const std::string& config_json() const override { return config_; }
  bool has(const std::string& name) const override { return file_.find(name) != nullptr; }

  void read(const std::string& name, std::int64_t from, std::int64_t count, const Tensor& to) override {
    const SafeTensor* t = file_.find(name);
    if (t == nullptr) input_error(path_ + " holds no tensor '" + name + "'; the adapters need it");
    const std::int64_t width = bytes_of(t->type);
    need(from >= 0 && count >= 0 && from <= t->bytes / width - count, "elements beyond the end of " + name);
    read_elements(file_.file, t->offset + from * width, t->type, count, to);
  }

 private:
  std::string path_, config_;
  SafeTensorsFile file_;
  std::vector<StoredTensor> tensors_;
};

/// Fields that change what adapters compute, and the values under which they are plain ones.
void refuse_others(const Json& config, const std::string& where) {
  const std::map<std::string, std::vector<Json>> plain = {{"peft_type", {"LORA"}},
                                                          {"use_dora", {false}},
                                                          {"use_qalora", {false}},
                                                          {"use_bdlora", {nullptr, false}},
                                                          {"lora_bias", {false}},
                                                          {"bias", {"none"}},
                                                          {"fan_in_fan_out", {false}},
                                                          {"alora_invocation_tokens", {nullptr}},
                                                          {"layer_replication", {nullptr}},
                                                          {"modules_to_save", {nullptr, Json::array()}},
                                                          {"rank_pattern", {nullptr, Json::object()}},
                                                          {"alpha_pattern", {nullptr, Json::object()}},
                                                          {"target_parameters", {nullptr, Json::array()}},
                                                          {"trainable_token_indices", {nullptr}},
                                                          {"kasa_config", {nullptr}},
                                                          {"monteclora_config", {nullptr}},
                                                          {"velora_config", {nullptr}}};
  for (const auto& [field, values] : plain) {
    const auto found = config.find(field);
    if (found == config.end() || std::find(values.begin(), values.end(), *found) != values.end()) continue;
    input_error(where + ": " + field + " is " + shown(found->dump()) +
                ", and adapters here are plain ones (" + values.front().dump() +
                "); save such an adapter with PEFT");
  }
  // These starts change the base's weights too, so that the adapter belongs to others than the model's.
  const Json start = config.value("init_lora_weights", Json(true));
  const std::vector<Json> known = {true, false, nullptr, "gaussian", "eva", "orthogonal"};
  if (std::find(known.begin(), known.end(), start) == known.end())
    input_error(where + ": init_lora_weights is " + shown(start.dump()) +
                ", which changes the base weights; convert it to a plain adapter with PEFT");
}

/// The projection that a tensor's name adapts; its layer is checked elsewhere, name by name.
Target target_of(const std::string& tensor, const std::string& where) {
  for (const std::string_view side : kSides)
    for (const Target t : kTargets)
      if (tensor.starts_with(kPrefix) && tensor.ends_with("." + std::string(name_of(t)) + std::string(side)))
        return t;
  input_error(where + ": tensor '" + shown(tensor) +
              "' is not an adapter of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj or down_proj");
}

}  // namespace

bool is_adapter_folder(const std::string& path) {
  std::error_code none;
  return fs::is_directory(path, none) && fs::exists(fs::path(path) / kAdapterConfig, none);
}

std::unique_ptr<WeightSource> open_adapter(const std::string& folder) {
  return std::make_unique<AdapterFolder>(folder);
}

LoraConfig adapter_of(const std::string& json, const std::vector<StoredTensor>& tensors,
                      const std::string& where) {
  const Json config = Json::parse(json, nullptr, false);
  if (!config.is_object()) input_error(where + ": its adapter_config.json is not a JSON object");
  refuse_others(config, where);
  const Json rank = config.value("r", Json(8)), alpha = config.value("lora_alpha", Json(8));
  const Json rslora = config.value("use_rslora", Json(false));
  if (!rank.is_number_integer() || rank < 1 || rank > 65536)
    input_error(where + ": r is " + shown(rank.dump()) + "; it must be a whole number from 1 to 65536");
  if (!alpha.is_number() || alpha.get<double>() <= 0 || alpha.get<double>() > 1e6)
    input_error(where + ": lora_alpha is " + shown(alpha.dump()) + "; it must be above 0 and at most 1e6");
  if (!rslora.is_boolean())
    input_error(where + ": use_rslora is " + shown(rslora.dump()) + "; it must be true or false");
  LoraConfig c{.rank = rank, .alpha = alpha, .rslora = rslora, .targets = {}};
  for (const StoredTensor& t : tensors)
    if (const Target target = target_of(t.name, where); !c.adapts(target)) c.targets.push_back(target);
  if (c.targets.empty()) input_error(where + " holds no adapter");
  std::sort(c.targets.begin(), c.targets.end());
  return c;
}

std::string adapter_json(const LoraConfig& c, const std::string& base) {
  Json targets = Json::array();
  for (const Target t : c.targets) targets.push_back(name_of(t));
  // PEFT writes whole numbers as such.
  const bool whole = c.alpha == std::floor(c.alpha);
  const Json alpha = whole ? Json(static_cast<std::int64_t>(c.alpha)) : Json(c.alpha);
  const Json config = {{"alora_invocation_tokens", nullptr},
                       {"alpha_pattern", Json::object()},
                       {"arrow_config", nullptr},
                       {"auto_mapping", nullptr},
                       {"base_model_name_or_path", base},
                       {"bias", "none"},
                       {"corda_config", nullptr},
                       {"eva_config", nullptr},
                       {"exclude_modules", nullptr},
                       {"fan_in_fan_out", false},
                       {"inference_mode", true},
                       {"init_lora_weights", true},
                       {"layer_replication", nullptr},
                       {"layers_pattern", nullptr},
                       {"layers_to_transform", nullptr},
                       {"loftq_config", Json::object()},
                       {"lora_alpha", alpha},
                       {"lora_bias", false},
                       {"lora_dropout", 0.0},
                       {"megatron_config", nullptr},
                       {"megatron_core", "megatron.core"},
                       {"modules_to_save", nullptr},
                       {"peft_type", "LORA"},
                       {"peft_version", "0.20.0"},
                       {"qalora_group_size", 16},
                       {"r", c.rank},
                       {"rank_pattern", Json::object()},
                       {"revision", nullptr},
                       {"target_modules", targets},
                       {"target_parameters", nullptr},
                       {"task_type", "CAUSAL_LM"},
                       {"trainable_token_indices", nullptr},
                       {"use_dora", false},
                       {"use_qalora", false},
                       {"use_rslora", c.rslora}};
  return config.dump(2) + "\n";
}

std::string adapter_name(const std::string& weight) {
  if (!weight.ends_with(kWeight)) return {};
  return std::string(kPrefix) + weight.substr(0, weight.size() - kWeight.size());
}

}  // namespace annulus
