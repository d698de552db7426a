#include "train/weights_fill.h"
#include <algorithm>
#include <map>
#include "core/bf16.h"
#include "core/rng.h"

namespace annulus {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t d : shape) text += (text.empty() ? "(" : ", ") + std::to_string(d);
  return text.empty() ? "()" : text + ")";
}

/// Tensors that folders hold and no computation needs: buffers of old files, and the head of a tied model.
bool ignored(const std::string& name, const ModelConfig& model) {
  if (name == "lm_head.weight") return model.tied;
  const std::string buffer = "rotary_emb.inv_freq";
  return name.size() >= buffer.size() &&
         name.compare(name.size() - buffer.size(), buffer.size(), buffer) == 0;
}

template <class T>
void draw_into(const Tensor& to, const Parameter& p, std::int64_t from, std::int64_t seed) {
  T* out = to.as<T>();
  const auto key = static_cast<std::uint64_t>(seed);
  for (std::int64_t i = 0; i < to.size(); ++i) {
    const auto at = static_cast<std::uint64_t>(from + i);
    double value = static_cast<double>(p.init_value);
    if (p.init_bound > 0)
      value = (2 * unit_interval(draw(key, Draw::init, p.id, at)[0]) - 1) * static_cast<double>(p.init_bound);
    else if (p.init_std > 0)
      value = normal(key, Draw::init, p.id, at) * static_cast<double>(p.init_std);
    out[i] = store<T>(static_cast<float>(value));
  }
}

}  // namespace

void check_source(const WeightSource& source, const std::vector<Unit>& units, const ModelConfig& model,
                  const std::string& path) {
  std::map<std::string, const StoredTensor*> stored;
  for (const StoredTensor& t : source.tensors()) {
    if (t.name.starts_with("base_model."))
      input_error(
          path +
          " holds adapters alone; give model.path their base model, and checkpoint.resume the adapters");
    stored[t.name] = &t;
  }
  for (const Unit& unit : units) {
    for (const Parameter& p : unit.parameters) {
      const auto found = stored.find(p.name);
      if (found == stored.end())
        input_error(
            path + ": tensor " + p.name + " is missing" +
            (p.name == "lm_head.weight"
                 ? "; config.json says that the head is not tied to the embedding (tie_word_embeddings)"
                 : "; the weights and config.json must be of the same model"));
      if (found->second->shape != p.shape)
        input_error(path + ": tensor " + p.name + " has shape " + shape_text(found->second->shape) +
                    ", and config.json makes it " + shape_text(p.shape) +
                    "; the weights and config.json must be of the same model");
      stored.erase(found);
    }
  }
  for (const auto& [name, tensor] : stored)
    if (!ignored(name, model))
      input_error(path + ": tensor " + name + " " + shape_text(tensor->shape) + " is not part of a " +
                  model.model_type + " model of " + std::to_string(model.L) +
                  " layers; the weights and config.json must be of the same model");
}

void fill_from(Comm& world, WeightSource& source, ShardedState& state, UnitRange units, Staging& staging,
               const std::function<void()>& beat) {
  agreed(world, "reading the weights", [&] {
    for (int u = units.first; u < units.end; ++u) {
      const UnitState& s = state.state(u);
      for (const Segment& part : s.segments)
        staging.fill(s.master.span(part.at, part.count), [&](std::int64_t at, const Tensor& host) {
          source.read(part.parameter->name, part.from + at, host.size(), host);
          beat();
        });
    }
  });
}

void fill_random(ShardedState& state, UnitRange units, Staging& staging, std::int64_t seed,
                 const std::function<void()>& beat) {
  for (int u = units.first; u < units.end; ++u) {
    const UnitState& s = state.state(u);
    for (const Segment& part : s.segments)
      staging.fill(s.master.span(part.at, part.count), [&](std::int64_t at, const Tensor& host) {
        if (host.dtype == DType::f32)
          draw_into<float>(host, *part.parameter, part.from + at, seed);
        else
          draw_into<bf16>(host, *part.parameter, part.from + at, seed);
        beat();
      });
  }
}

}  // namespace annulus
