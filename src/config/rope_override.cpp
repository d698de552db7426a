// The run's own say about rotary positions: its model.rope.* keys, and whether its rows fit.
#include <algorithm>
#include "config/json_read.h"
#include "config/model_config.h"
#include "config/run_config.h"
#include "config/values.h"
#include "core/check.h"

namespace annulus {
namespace {

using nlohmann::ordered_json;

bool overrides(const ModelSection& m) {
  return !m.rope_type.empty() || m.rope_factor != 0 || m.rope_original_positions != 0 || m.rope_theta != 0;
}

std::string type_of(const ordered_json& rope) {
  for (const char* key : {"rope_type", "type"})  // the second is the older name
    if (rope.contains(key) && rope[key].is_string()) return rope[key].get<std::string>();
  return "default";
}

/// Another type has other keys; only theta is common to all.
ordered_json of_type(const std::string& type, const ordered_json& rope) {
  ordered_json fresh = {{"rope_type", type}};
  if (rope.contains("rope_theta")) fresh["rope_theta"] = rope["rope_theta"];
  if (type == "llama3") {
    const RopeConfig ramp;
    fresh["low_freq_factor"] = ramp.low_freq_factor;
    fresh["high_freq_factor"] = ramp.high_freq_factor;
  }
  return fresh;
}

}  // namespace

std::string with_overrides(const std::string& json, const ModelSection& m, const std::string& where) {
  if (!overrides(m)) return json;
  ordered_json all = read_json(json, where);
  if (!all.is_object()) input_error(where + ": config.json is not a JSON object");
  const bool nested = all.contains("rope_parameters") && all["rope_parameters"].is_object();
  if (nested) all.erase("rope_scaling");  // some files repeat it; one place is enough
  ordered_json& rope = all[nested ? "rope_parameters" : "rope_scaling"];
  if (!m.rope_type.empty() && (!rope.is_object() || type_of(rope) != m.rope_type))
    rope = of_type(m.rope_type, rope.is_object() ? rope : ordered_json::object());
  if ((m.rope_factor != 0 || m.rope_original_positions != 0) && !rope.is_object())
    usage_error("model.rope.factor is given, and " + where +
                " has no rope scaling; give model.rope.type as well");
  if (m.rope_factor != 0) rope["factor"] = m.rope_factor;
  if (m.rope_original_positions != 0) rope["original_max_position_embeddings"] = m.rope_original_positions;
  if (m.rope_theta != 0) {  // wherever it stands
    if (rope.is_object() && (nested || rope.contains("rope_theta"))) rope["rope_theta"] = m.rope_theta;
    if (!nested || all.contains("rope_theta")) all["rope_theta"] = m.rope_theta;
  }
  return all.dump(2) + "\n";
}

std::string check_positions(const ModelConfig& c, const RunConfig& run) {
  const DataSection& d = run.data;
  const std::int64_t longest = d.max_length > 0 ? std::min(d.max_length, d.sequence) : d.sequence;
  const bool scaled = c.rope.type != "default";
  const auto stretched =
      static_cast<std::int64_t>(c.rope.factor * static_cast<double>(c.rope.original_positions));
  const bool own = !run.model.rope_type.empty() || run.model.rope_factor != 0;
  const std::int64_t reach = !scaled ? c.max_positions
                             : own   ? stretched
                                     : std::max(c.max_positions, stretched);
  if (longest <= reach) return {};
  const std::string figures =
      "documents of up to " + std::to_string(longest) + " tokens (data.sequence) go beyond the ";
  if (!scaled)
    return "warning: " + figures + std::to_string(reach) +
           " positions that the model was trained on; later ones look alike to it: stretch them with "
           "model.rope.type=yarn, model.rope.factor=" +
           shortest(static_cast<double>((longest + reach - 1) / reach)) +
           " and model.rope.original_positions=" + std::to_string(reach);
  const std::string needed = shortest(static_cast<double>(
      (longest + c.rope.original_positions - 1) / std::max<std::int64_t>(1, c.rope.original_positions)));
  const std::string what = figures + std::to_string(reach) + " positions that " + c.rope.type +
                           " with factor " + shortest(c.rope.factor) + " of " +
                           std::to_string(c.rope.original_positions) +
                           " positions stretches to; give model.rope.factor=" + needed + " or shorter rows";
  if (own) usage_error(what);
  return "warning: " + what;
}

}  // namespace annulus
