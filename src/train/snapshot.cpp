#include "train/snapshot.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <vector>
#include "train/weights_fill.h"

namespace annulus {
namespace {

struct Part {
  std::string prefix;
  Tensor UnitState::*tensor;
};

/// Datasets of the whole model and this rank's pieces of them. Only one copy of the state writes.
SaveRequest request_of(Engine& engine, Staging& staging, const std::vector<Part>& parts, bool widened) {
  SaveRequest request;
  ShardedState& state = engine.state();
  for (const Part& part : parts) {
    for (int u = 0; u < static_cast<int>(state.units().size()); ++u) {
      const UnitState& s = state.state(u);
      const Tensor& shard = s.*part.tensor;
      if (!state.trains(u)) continue;
      for (const Parameter& p : state.units()[static_cast<std::size_t>(u)].parameters)
        request.datasets.push_back({part.prefix + p.name, p.shape, widened ? DType::f32 : shard.dtype});
      if (state.replica().rank() != 0 || s.segments.empty()) continue;
      const Tensor host = widened ? staging.on_host_f32(shard) : staging.on_host(shard);
      for (const Segment& piece : s.segments)
        request.pieces.push_back(
            {part.prefix + piece.parameter->name, host.span(piece.at, piece.count), piece.from});
    }
  }
  return request;
}

void save(Comm& world, Engine& engine, const std::string& path, std::map<std::string, std::string> facts,
          const std::vector<Part>& parts, bool widened = false) {
  engine.settle();
  Staging staging(engine.backend());
  SaveRequest request = request_of(engine, staging, parts, widened);
  request.path = path;
  request.facts = std::move(facts);
  save_h5(world, request);
}

const std::vector<Part>& state_parts() {
  static const std::vector<Part> kParts = {
      {"/model/", &UnitState::master}, {"/optimizer/m/", &UnitState::m}, {"/optimizer/v/", &UnitState::v}};
  return kParts;
}

/// A config text as key -> values; lists have one line a value.
std::map<std::string, std::vector<std::string>> keys_of(const std::string& config) {
  std::map<std::string, std::vector<std::string>> keys;
  std::string section;
  for (std::size_t at = 0; at < config.size();) {
    const std::size_t end = std::min(config.find('\n', at), config.size());
    const std::string line = config.substr(at, end - at);
    at = end + 1;
    if (line.empty() || line[0] == ';' || line[0] == '#') continue;
    if (line[0] == '[') {
      section = line.substr(1, line.find(']') - 1) + ".";
      continue;
    }
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const auto trim = [](std::string s) {
      s.erase(0, s.find_first_not_of(" \t"));
      s.erase(s.find_last_not_of(" \t\r") + 1);
      return s;
    };
    keys[section + trim(line.substr(0, equals))].push_back(trim(line.substr(equals + 1)));
  }
  return keys;
}

std::string joined(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& v : values) text += (text.empty() ? "" : " ") + v;
  return text.empty() ? "(nothing)" : text;
}

/// What may differ between two lives of a run: where it runs and what it writes, never what it computes. The
/// files of model and data may have moved; their fingerprints are compared. train.rows has its own check.
bool may_change(const std::string& key, const RunConfig& run) {
  static const std::set<std::string> kSections = {"run",    "parallel",   "memory",
                                                  "device", "checkpoint", "debug"};
  static const std::set<std::string> kKeys = {"model.path",       "model.init",      "data.eval",
                                              "data.tokenizer",   "data.skip_bad",   "train.rows",
                                              "train.eval_every", "train.log_every", "optimizer.offload"};
  if (kSections.count(key.substr(0, key.find('.'))) > 0 || kKeys.count(key) > 0) return true;
  // Texts are tokenized once, into the run's own file; a token file may have moved.
  if (key == "data.train") return run.data.train.size() == 1 && run.data.train[0].ends_with(".h5");
  // A constant rate does not depend on where the run ends.
  const bool open_end =
      run.optimizer.schedule == "constant" && (run.optimizer.warmup == 0 || run.optimizer.warmup >= 1);
  return open_end && (key == "train.steps" || key == "data.epochs");
}

std::string fact(const H5Reader& reader, const std::string& path, const char* name) {
  const auto found = reader.facts().find(name);
  if (found == reader.facts().end())
    input_error(path + ": no \"" + name + "\" in /run: it is not a checkpoint of a training run");
  return found->second;
}

std::int64_t number(const H5Reader& reader, const std::string& path, const char* name) {
  const std::string text = fact(reader, path, name);
  char* end = nullptr;
  const long long n = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != 0 || n < 0)
    input_error(path + ": \"" + name + "\" in /run is \"" + text + "\" and not a count");
  return n;
}

/// Reads the units' masters, and moments when `moments`.
void load_state(Comm& world, H5Reader& reader, ShardedState& state, UnitRange units, Staging& staging,
                bool moments, const std::function<void()>& beat) {
  agreed(world, "reading the checkpoint", [&] {
    const auto load = [&](const Tensor& shard, const Segment& part, const std::string& dataset) {
      if (!shard) return;
      if (!reader.has(dataset)) input_error("the checkpoint has no dataset " + dataset);
      staging.fill(shard.span(part.at, part.count), [&](std::int64_t at, const Tensor& host) {
        reader.read(dataset, part.from + at, host.size(), host);
        beat();
      });
    };
    for (int u = units.first; u < units.end; ++u) {
      const UnitState& s = state.state(u);
      for (const Segment& part : s.segments) {
        load(s.master, part, "/model/" + part.parameter->name);
        if (!moments) continue;
        load(s.m, part, "/optimizer/m/" + part.parameter->name);
        load(s.v, part, "/optimizer/v/" + part.parameter->name);
      }
    }
  });
}

}  // namespace

std::string fingerprint(const std::string& bytes) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : bytes) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(h));
  return text;
}

std::string model_fingerprint(const ModelConfig& c, const std::vector<Unit>& units) {
  std::string all = c.model_type + " eps " + std::to_string(c.norm_eps * 1e9) + " heads " +
                    std::to_string(c.H) + " " + std::to_string(c.G) + " rope " + c.rope.type;
  for (const double v :
       {c.rope.theta, c.rope.factor, static_cast<double>(c.rope.original_positions), c.rope.beta_fast,
        c.rope.beta_slow, c.rope.truncate ? 1.0 : 0.0, c.rope.attention_factor, c.rope.mscale,
        c.rope.mscale_all_dim, c.rope.low_freq_factor, c.rope.high_freq_factor})
    all += " " + std::to_string(v);
  for (const std::int64_t w : c.windows) all += " w" + std::to_string(w);
  for (const Unit& unit : units)
    for (const Parameter& p : unit.parameters) {
      all += "\n" + p.name;
      for (const std::int64_t d : p.shape) all += " " + std::to_string(d);
    }
  return fingerprint(all);
}

std::string data_fingerprint(Comm& world, TokenFile& file) {
  std::string print;
  agreed(world, "reading the token file", [&] {
    if (world.rank() != 0) return;
    const std::vector<std::int64_t>& documents = file.documents();
    std::string all(reinterpret_cast<const char*>(documents.data()), documents.size() * sizeof(std::int64_t));
    const std::int64_t tokens = documents.back();
    constexpr std::int64_t kSamples = 64, kLength = 1024;
    std::vector<std::int32_t> ids(kLength);
    std::vector<std::uint8_t> mask(kLength);
    for (std::int64_t s = 0; s < kSamples; ++s) {
      const std::int64_t from = s * (tokens / kSamples), count = std::min(kLength, tokens - from);
      file.read(from, count, ids.data(), mask.data());
      all.append(reinterpret_cast<const char*>(ids.data()),
                 static_cast<std::size_t>(count) * sizeof(std::int32_t));
      all.append(reinterpret_cast<const char*>(mask.data()), static_cast<std::size_t>(count));
    }
    print = fingerprint(all);
  });
  world.broadcast(print, 0);
  return print;
}

std::map<std::string, std::string> make_facts(const Progress& p, const RunConfig& run,
                                              const ModelConfig& model, const std::string& model_print,
                                              const std::string& data_print) {
  return {{"step", std::to_string(p.step)},
          {"rows_per_step", std::to_string(p.rows_per_step)},
          {"tokens", std::to_string(p.tokens)},
          {"targets", std::to_string(p.targets)},
          {"seed", std::to_string(run.train.seed)},
          {"model_fingerprint", model_print},
          {"data_fingerprint", data_print},
          {"config_json", model.json},
          {"config", print_config(run)}};
}

Progress progress_of(const H5Reader& reader, const std::string& path) {
  Progress p;
  p.step = number(reader, path, "step");
  p.rows_per_step = number(reader, path, "rows_per_step");
  p.tokens = number(reader, path, "tokens");
  p.targets = number(reader, path, "targets");
  if (p.rows_per_step == 0) input_error(path + ": rows_per_step is 0 in /run");
  return p;
}

void check_same_run(const H5Reader& reader, const std::string& path, const RunConfig& run,
                    const std::string& model_print, const std::string& data_print) {
  const auto then = keys_of(fact(reader, path, "config")), now = keys_of(print_config(run));
  std::set<std::string> names;
  for (const auto& [key, values] : then) names.insert(key);
  for (const auto& [key, values] : now) names.insert(key);
  const bool whole = then.count("lora.rank") == 0 || then.at("lora.rank").front() == "0";
  const std::string advice = "; give it the old value to go on, or another run.dir" +
                             (whole ? " (with model.path=" + path + " to start from its weights)" : "");
  for (const std::string& key : names) {
    if (may_change(key, run)) continue;
    const auto a = then.find(key), b = now.find(key);
    const std::vector<std::string> none;
    const auto &old_values = a == then.end() ? none : a->second,
               &new_values = b == now.end() ? none : b->second;
    if (old_values != new_values)
      usage_error(key + " was " + joined(old_values) + " in " + path + " and is " + joined(new_values) +
                  " now" + advice);
  }
  const std::int64_t rows = number(reader, path, "rows_per_step");
  if (run.train.rows > 0 && run.train.rows != rows)
    usage_error("train.rows was " + std::to_string(rows) + " in " + path + " and is " +
                std::to_string(run.train.rows) + " now" + advice);
  if (fact(reader, path, "model_fingerprint") != model_print)
    input_error(path + " was written for another model than that of model.path=" + run.model.path);
  if (fact(reader, path, "data_fingerprint") != data_print)
    input_error(path + " was written for other data than data.train gives now");
}

std::unique_ptr<Save> begin_state(Comm& world, Engine& engine, Staging& staging, const std::string& path,
                                  std::map<std::string, std::string> facts, const std::string& fail) {
  engine.settle();
  SaveRequest request = request_of(engine, staging, state_parts(), false);
  request.path = path;
  request.facts = std::move(facts);
  request.fail = fail;
  return begin_save(world, request);
}

void save_state(Comm& world, Engine& engine, const std::string& path,
                std::map<std::string, std::string> facts, const std::string& fail) {
  Staging staging(engine.backend());
  const std::unique_ptr<Save> save = begin_state(world, engine, staging, path, std::move(facts), fail);
  save->write();
  save->finish();
}

std::int64_t state_bytes(Engine& engine) {
  std::int64_t bytes = 0;
  ShardedState& state = engine.state();
  for (const Part& part : state_parts())
    for (int u = 0; u < static_cast<int>(state.units().size()); ++u) {
      const Tensor& shard = state.state(u).*part.tensor;
      if (!state.trains(u)) continue;
      for (const Parameter& p : state.units()[static_cast<std::size_t>(u)].parameters)
        bytes += p.size() * bytes_of(shard.dtype);
    }
  return bytes;
}

void save_gradients(Comm& world, Engine& engine, const std::string& path,
                    std::map<std::string, std::string> facts) {
  save(world, engine, path, std::move(facts), {{"/model/", &UnitState::grad}}, true);
}

void save_weights(Comm& world, Engine& engine, const std::string& path,
                  std::map<std::string, std::string> facts) {
  save(world, engine, path, std::move(facts), {{"/model/", &UnitState::master}});
}

void fill_engine(Comm& world, Engine& engine, WeightSource* base, H5Reader* from, WeightSource* start,
                 Staging& staging, bool moments, const std::function<void()>& beat) {
  ShardedState& state = engine.state();
  const auto fill = [&](WeightSource* source, UnitRange units) {
    if (source != nullptr)
      fill_from(world, *source, state, units, staging, beat);
    else
      fill_random(state, units, staging, engine.spec().run.train.seed, beat);
  };
  const int units = static_cast<int>(state.units().size());
  if (engine.spec().options.lora.rank > 0) {
    const UnitRange frozen{0, base_units(engine.spec().model)}, adapters{frozen.end, units};
    fill(base, frozen);
    if (from != nullptr)
      load_state(world, *from, state, adapters, staging, moments, beat);
    else
      fill(start, adapters);
  } else if (from != nullptr) {
    load_state(world, *from, state, {0, units}, staging, moments, beat);
  } else {
    fill(base, {0, units});
  }
}

}  // namespace annulus
