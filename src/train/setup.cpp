#include "train/setup.h"
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include "train/memory_plan.h"
#include "train/weights_fill.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

bool is_h5(const std::string& path) {
  return fs::path(path).extension() == ".h5";
}

std::string config_json_of(const std::string& path) {
  if (is_h5(path)) return open_weights(path)->config_json();
  const std::string file = path + "/config.json";
  std::ifstream in(file, std::ios::binary);
  if (!in)
    input_error("cannot read " + file + "; model.path must be a Hugging Face folder or an Annulus .h5 file");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

std::string with_overrides(const std::string& json, const ModelSection& m, const std::string& where) {
  if (m.rope_type.empty() && m.rope_factor == 0 && m.rope_original_positions == 0 && m.rope_theta == 0)
    return json;
  nlohmann::ordered_json all = nlohmann::ordered_json::parse(json, nullptr, false);
  if (!all.is_object()) input_error(where + ": config.json is not a JSON object");
  const bool nested = all.contains("rope_parameters") && all["rope_parameters"].is_object();
  if (nested) all.erase("rope_scaling");  // some files repeat it; one place is enough
  nlohmann::ordered_json& rope = all[nested ? "rope_parameters" : "rope_scaling"];
  if (!m.rope_type.empty()) {
    // Another type has other keys; only theta is common to all.
    nlohmann::ordered_json fresh = {{"rope_type", m.rope_type}};
    if (rope.is_object() && rope.contains("rope_theta")) fresh["rope_theta"] = rope["rope_theta"];
    rope = fresh;
  }
  if ((m.rope_factor != 0 || m.rope_original_positions != 0) && !rope.is_object())
    usage_error("model.rope.factor is given, and " + where +
                " has no rope scaling; give model.rope.type as well");
  if (m.rope_factor != 0) rope["factor"] = m.rope_factor;
  if (m.rope_original_positions != 0) rope["original_max_position_embeddings"] = m.rope_original_positions;
  if (m.rope_theta != 0) (nested ? rope : all)["rope_theta"] = m.rope_theta;
  return all.dump(2) + "\n";
}

ModelConfig model_config_of(const RunConfig& run) {
  const std::string& path = run.model.path;
  if (path.empty()) usage_error("model.path is not set: give a Hugging Face folder or an Annulus .h5 file");
  const std::string json = with_overrides(config_json_of(path), run.model, path);
  ModelConfig config = parse_model_config(json, is_h5(path) ? path : path + "/config.json");
  config.json = json;
  return config;
}

ModelSource open_model(const RunConfig& run) {
  ModelSource source{.config = model_config_of(run), .weights = nullptr};
  if (run.model.init != "random") source.weights = open_weights(run.model.path);
  if (source.weights) check_source(*source.weights, make_units(source.config), source.config, run.model.path);
  return source;
}

std::string token_file_of(Comm& world, const std::vector<std::string>& files, const RunConfig& run,
                          const ModelConfig& model, const std::string& out, bool reuse) {
  if (files.size() == 1 && is_h5(files[0])) return files[0];
  std::int64_t there = 0;
  if (world.rank() == 0 && reuse) there = fs::exists(out) ? 1 : 0;
  if (world.max(there) == 0) tokenize_files(world, files, run.data, model, run.model.path, out);
  return out;
}

DType compute_type(const RunConfig& run, Place place) {
  if (run.device.precision == "auto") return place == Place::device ? DType::bf16 : DType::f32;
  if (run.device.precision == "bf16" && place == Place::host)
    usage_error("device.precision=bf16 needs a GPU; on a CPU use f32 (or auto)");
  return run.device.precision == "bf16" ? DType::bf16 : DType::f32;
}

std::unique_ptr<Engine> build_engine(Comm& world, const Node& node, Backend& backend, const EngineSpec& spec,
                                     bool with_eval, std::function<void()> at_layer, const Say& say) {
  const Place place = backend.memory().place();
  Layout layout = plan_memory(spec, node, place, &backend.ops(), with_eval);
  if (place == Place::host)
    check_host_memory(world, spec, node, &backend.ops(), with_eval, layout.total_bytes(), host_bytes_free());
  std::int64_t parameters = 0;
  for (const Unit& unit : make_units(spec.model, spec.options.lora))
    for (const Parameter& p : unit.parameters) parameters += p.size();
  say(std::to_string(parameters) + " parameters; a rank's memory: " + describe(layout));
  auto arena = std::make_unique<Arena>(backend.queue(), backend.memory(), std::move(layout));
  return std::make_unique<Engine>(backend,
                                  make_groups(backend, world, spec.grid, node, spec.run.parallel.shard),
                                  std::move(arena), spec, std::move(at_layer));
}

EvalResult evaluate(Comm& world, Engine& engine, Dataset& data) {
  const EngineSpec& spec = engine.spec();
  const std::vector<std::int64_t> windows = spec.model.distinct_windows();
  EvalResult result;
  double sums[2] = {};  // nll, hits
  std::int64_t targets = 0;
  for (std::int64_t first = 0; first < data.rows(); first += spec.grid.data) {
    const std::int64_t mine = first + spec.grid.data_index;
    std::vector<LocalRow> row;
    agreed(world, "reading a row", [&] {
      row.push_back(data.local_row(mine < data.rows() ? mine : -1, spec.grid, spec.per_member, windows));
    });
    const RowTotals totals = engine.eval(row.front());
    sums[0] += totals.nll;
    sums[1] += totals.hits;
    targets += row.front().target_count();
  }
  world.all_reduce(std::span<double>(sums));
  result.targets = world.sum(targets);
  result.tokens = data.tokens();
  const double n = static_cast<double>(result.targets);
  if (result.targets == 0) input_error("data.eval has no target: every token is masked");
  result.loss = sums[0] / n;
  result.perplexity = std::exp(result.loss);
  result.accuracy = sums[1] / n;
  return result;
}

}  // namespace annulus
