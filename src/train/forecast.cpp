#include "train/forecast.h"
#include <utility>
#include "ops/dry/backend.h"
#include "train/flops.h"
#include "train/memory_plan.h"

namespace annulus {
namespace {

std::size_t index(Lane lane) {
  return static_cast<std::size_t>(lane);
}

void add(Traffic& sum, const Traffic& t, std::int64_t times) {
  for (int c = 0; c < kCollectives; ++c)
    for (int l = 0; l < kLanes; ++l) {
      sum.calls[c][l] += times * t.calls[c][l];
      sum.bytes[c][l] += times * t.bytes[c][l];
    }
}

}  // namespace

double Forecast::busy(Lane lane) const {
  return static_cast<double>(micro_steps) * micro.busy[index(lane)] + update.busy[index(lane)];
}

double Forecast::waited_for(Lane lane) const {
  return static_cast<double>(micro_steps) * micro.waited_for[index(lane)] + update.waited_for[index(lane)];
}

std::map<std::string, Spent> Forecast::kinds() const {
  std::map<std::string, Spent> all = update.kinds;
  const auto n = static_cast<double>(micro_steps);
  for (const auto& [kind, spent] : micro.kinds) {
    Spent& sum = all[kind];
    sum.calls += micro_steps * spent.calls;
    sum.seconds += n * spent.seconds;
    sum.flops += n * spent.flops;
    sum.bytes += n * spent.bytes;
  }
  return all;
}

LocalRow row_of_documents(const EngineSpec& s, std::int64_t document) {
  const std::int64_t S = s.run.data.sequence;
  RowShape shape{.sequence = S, .used = S, .starts = {0}};
  if (document > 0)
    for (std::int64_t at = document; at < S; at += document) shape.starts.push_back(at);
  const std::vector<std::int64_t> windows = s.model.distinct_windows();
  return {RowMap(shape, s.grid.ring, s.grid.ulysses, s.per_member, windows), {}, {}, {}};
}

Forecast forecast(const EngineSpec& spec, const Node& node, Place place, const Ops* sizes, const Rates* rates,
                  const Links& links, std::int64_t document) {
  DryBackend dry(place, sizes, rates);
  Forecast f;
  f.layout = plan_memory(spec, node, place, &dry.ops(), false);
  const std::int64_t rows = spec.run.train.rows > 0 ? spec.run.train.rows : spec.grid.data;
  f.micro_steps = (rows + spec.grid.data - 1) / spec.grid.data;
  f.tokens = rows * spec.run.data.sequence;
  const LocalRow row = row_of_documents(spec, document);
  f.flops = static_cast<double>(rows) * model_flops(spec.model, spec.options.lora, row.map.shape());

  Traffic traffic;
  Engine engine(dry,
                make_loopback_groups(dry, spec.grid, node, spec.run.parallel.shard,
                                     {.traffic = &traffic, .links = links}),
                std::make_unique<Arena>(dry.queue(), dry.memory(), f.layout), spec, [] {});
  dry.queue().take();
  traffic = {};
  engine.micro(row, 1.0);
  f.micro = dry.queue().take();
  add(f.traffic, std::exchange(traffic, {}), f.micro_steps);
  engine.update(0.0, 1);
  f.update = dry.queue().take();
  add(f.traffic, traffic, 1);
  f.pinned_bytes = engine.host_bytes();
  return f;
}

}  // namespace annulus
