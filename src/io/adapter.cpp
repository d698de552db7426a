#include "io/adapter.h"
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include "core/check.h"
#include "io/expert_adapters.h"
#include "io/file.h"
#include "io/safetensors.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t kRank = 8;  // PEFT's r, and its lora_alpha
constexpr std::int64_t kMostConfig = std::int64_t{16} << 20;
constexpr const char* kGateUpPattern = ".*\\.gate_up_proj";
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
    if (std::none_of(tensors_.begin(), tensors_.end(),
                     [](const StoredTensor& t) { return is_expert_adapter(t.name); }))
      return;
    const LoraConfig lora = adapter_of(config_, tensors_, folder);
    for (StoredTensor& t : tensors_) {
      if (!is_expert_adapter(t.name)) continue;
      const bool gate_up =
          t.name.find("." + adapter_module(lora, Target::experts_gate_up) + ".lora_") != std::string::npos;
      const bool is_gate_up = lora.adapts(Target::experts_gate_up) && gate_up;
      t.shape = stack_shape(t.name, t.shape,
                            lora.rank_of(is_gate_up ? Target::experts_gate_up : Target::experts_down));
    }
  }

  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  const std::string& config_json() const override { return config_; }
  bool has(const std::string& name) const override { return file_.find(name) != nullptr; }

  void read(const std::string& name, std::int64_t from, std::int64_t count, const Tensor& to) override {
    const SafeTensor* t = file_.find(name);
    if (t == nullptr) input_error(path_ + " holds no tensor '" + name + "'; the adapters need it");
    const std::int64_t width = bytes_of(t->type);
    need(from >= 0 && count >= 0 && from <= t->bytes / width - count, "elements beyond the end of " + name);
    const ReadElements read = [&](std::int64_t at, std::int64_t n, const Tensor& into) {
      read_elements(file_.file, t->offset + at * width, t->type, n, into);
    };
    const Shape& shape = shape_of(name);
    if (shape.size() == 3 && name.ends_with(kSides[1]))
      stack_from_matrix(shape, read, from, count, to);
    else
      read(from, count, to);
  }

 private:
  const Shape& shape_of(const std::string& name) const {
    return std::find_if(tensors_.begin(), tensors_.end(),
                        [&](const StoredTensor& t) { return t.name == name; })
        ->shape;
  }

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

/// Whether the patterns are those under which PEFT joins gate_proj and up_proj of experts: twice r, and twice
/// lora_alpha, for gate_up_proj. Input error for other patterns.
bool joins_gate_and_up(const Json& config, const Json& rank, const Json& alpha, const std::string& where) {
  bool joined[] = {false, false};
  const std::pair<const char*, const Json*> all[] = {{"rank_pattern", &rank}, {"alpha_pattern", &alpha}};
  for (std::size_t i = 0; i < std::size(all); ++i) {
    const auto& [field, plain] = all[i];
    const Json pattern = config.value(field, Json(nullptr));
    if (pattern.is_null() || pattern == Json::object()) continue;
    joined[i] = pattern == Json{{kGateUpPattern, 2 * plain->get<double>()}};
    if (!joined[i])
      input_error(
          where + ": " + field + " is " + shown(pattern.dump()) +
          ", and adapters here have one rank and one alpha (of experts also what PEFT makes of the modules "
          "gate_proj and up_proj); save such an adapter with PEFT");
  }
  if (joined[0] != joined[1])
    input_error(where + ": one of rank_pattern and alpha_pattern names " + kGateUpPattern +
                ", and the other does not; PEFT writes both");
  return joined[0];
}

/// A target's parameter, behind "model.layers.N.".
std::string parameter_of(Target t) {
  if (is_experts(t)) return name_of(t);
  return (t < Target::gate ? "self_attn." : "mlp.") + std::string(name_of(t)) + std::string(kWeight);
}

/// The experts' stacks that target_parameters names, as PEFT matches: by the whole name, or its end behind a
/// dot.
std::vector<Target> target_parameters(const Json& config, const std::string& where) {
  const Json named = config.value("target_parameters", Json(nullptr));
  std::vector<Target> found;
  if (named.is_null()) return found;
  if (!named.is_array())
    input_error(where + ": target_parameters is " + shown(named.dump()) + " and not a list");
  for (const Json& name : named) {
    const auto matches = [&](Target t) {
      const std::string all = parameter_of(t), end = name.is_string() ? name.get<std::string>() : "";
      return all == end || (!end.empty() && all.ends_with("." + end));
    };
    if (std::none_of(std::begin(kTargets), std::end(kTargets), matches))
      input_error(
          where + ": target_parameters names " + shown(name.dump()) +
          ", and adapters here are on mlp.experts.gate_up_proj, mlp.experts.down_proj and the weights of "
          "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj, in every layer that has them");
    for (const Target t : kTargets)
      if (is_experts(t) && matches(t)) found.push_back(t);
  }
  return found;
}

/// Until 0.18 PEFT took the sides of experts' matrices for one another.
void refuse_old_experts(const Json& config, const std::string& where) {
  const Json version = config.value("peft_version", Json(nullptr));
  int major = 0, minor = 0;
  if (!version.is_string() || std::sscanf(version.get<std::string>().c_str(), "%d.%d", &major, &minor) != 2)
    return;
  if (major == 0 && minor < 19)
    input_error(
        where + ": its adapters of experts are of PEFT " + shown(version.get<std::string>()) +
        ", which laid them out in another way than 0.19 and later do; train them again with a newer PEFT");
}

/// The matrix that a tensor's name adapts; its layer is checked elsewhere, name by name. `experts`: the
/// stacks that the config names.
Target target_of(const std::string& tensor, const std::vector<Target>& experts, const std::string& where) {
  const auto named = [&](Target t) { return std::find(experts.begin(), experts.end(), t) != experts.end(); };
  for (const std::string_view side : kSides) {
    if (!tensor.starts_with(kPrefix) || !tensor.ends_with(side)) continue;
    const std::string_view module = std::string_view(tensor).substr(0, tensor.size() - side.size());
    for (const Target t : kTargets)
      if (!is_experts(t) && module.ends_with("." + std::string(name_of(t)))) return t;
    const bool gate_up = named(Target::experts_gate_up), down = named(Target::experts_down);
    if (module.ends_with(".mlp.experts.base_layer") && gate_up && down) return Target::experts_gate_up;
    if (module.ends_with(".mlp.experts") && (gate_up || down))
      return down ? Target::experts_down : Target::experts_gate_up;
  }
  input_error(
      where + ": tensor '" + shown(tensor) +
      "' is not an adapter of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj or down_proj, nor of "
      "experts that target_parameters names");
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
  const Json rank = config.value("r", Json(kRank)), alpha = config.value("lora_alpha", Json(kRank));
  const Json rslora = config.value("use_rslora", Json(false));
  if (!rank.is_number_integer() || rank < 1 || rank > 65536)
    input_error(where + ": r is " + shown(rank.dump()) + "; it must be a whole number from 1 to 65536");
  if (!alpha.is_number() || alpha.get<double>() <= 0 || alpha.get<double>() > 1e6)
    input_error(where + ": lora_alpha is " + shown(alpha.dump()) + "; it must be above 0 and at most 1e6");
  if (!rslora.is_boolean())
    input_error(where + ": use_rslora is " + shown(rslora.dump()) + "; it must be true or false");
  LoraConfig c;
  c.rank = rank;
  c.alpha = alpha;
  c.rslora = rslora;
  c.gate_and_up = joins_gate_and_up(config, rank, alpha, where);
  const std::vector<Target> experts = target_parameters(config, where);
  if (!experts.empty()) refuse_old_experts(config, where);
  for (const StoredTensor& t : tensors)
    if (const Target target = target_of(t.name, experts, where); !c.adapts(target))
      c.targets.push_back(target);
  if (c.targets.empty()) input_error(where + " holds no adapter");
  for (const Target t : experts)
    if (!c.adapts(t))
      input_error(where + ": target_parameters names " + name_of(t) +
                  ", and no tensor is its adapter; the file is not whole");
  std::sort(c.targets.begin(), c.targets.end());
  return c;
}

std::string adapter_json(const LoraConfig& c, const ModelConfig& model, const std::string& base) {
  // Of a model with experts PEFT takes the modules gate_proj, up_proj and down_proj for theirs; a dense
  // layer's it knows as parameters then.
  Json targets = Json::array(), parameters = Json::array();
  for (const Target t : c.targets) {
    if (is_experts(t) || (t >= Target::gate && model.E > 0))
      parameters.push_back(parameter_of(t));
    else
      targets.push_back(name_of(t));
  }
  // PEFT writes whole numbers as such.
  const bool whole = c.alpha == std::floor(c.alpha);
  const Json alpha = whole ? Json(static_cast<std::int64_t>(c.alpha)) : Json(c.alpha);
  Json ranks = Json::object(), alphas = Json::object();
  if (c.gate_and_up) {
    ranks[kGateUpPattern] = c.rank_of(Target::experts_gate_up);
    alphas[kGateUpPattern] = whole ? Json(2 * static_cast<std::int64_t>(c.alpha)) : Json(2 * c.alpha);
  }
  const Json config = {{"alora_invocation_tokens", nullptr},
                       {"alpha_pattern", alphas},
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
                       {"rank_pattern", ranks},
                       {"revision", nullptr},
                       {"target_modules", targets},
                       {"target_parameters", parameters.empty() ? Json(nullptr) : parameters},
                       {"task_type", "CAUSAL_LM"},
                       {"trainable_token_indices", nullptr},
                       {"use_dora", false},
                       {"use_qalora", false},
                       {"use_rslora", c.rslora}};
  return config.dump(2) + "\n";
}

std::string adapter_name(const LoraConfig& c, const std::string& weight) {
  for (const Target t : c.targets) {
    const std::string parameter = "." + parameter_of(t);
    if (weight.ends_with(parameter))
      return std::string(kPrefix) + weight.substr(0, weight.size() - parameter.size() + 1) +
             adapter_module(c, t);
  }
  return {};
}

}  // namespace annulus
