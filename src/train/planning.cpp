#include "train/planning.h"
#include <algorithm>
#include <functional>
#include <limits>
#include "ops/dry/backend.h"
#include "train/setup.h"

namespace annulus {
namespace {

constexpr double kGiga = 1e9, kMicro = 1e-6;
constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max() / 2;
constexpr int kMostRanks = 4096;  // that are proposed

int per_node(const PlanOptions& o, const Rates* rates) {
  if (o.ranks_per_node > 0) return std::min(o.ranks, o.ranks_per_node);
  return rates == nullptr ? o.ranks : std::min(o.ranks, static_cast<int>(rates->number("ranks_per_node")));
}

MemoryBudget budget_of(const RunConfig& run, const DryBackend& dry, const PlanDevice& device,
                       const PlanOptions& o, const Node& node) {
  const std::int64_t host =
      o.host_gb > 0 ? static_cast<std::int64_t>(o.host_gb * kGiga) / 10 * 9 / node.local_size : kNoLimit;
  if (device.place == Place::host) return {.device = host, .host = 0};
  if (device.rates == nullptr) return {.device = kNoLimit, .host = host};
  return {.device = device_budget(dry, run.memory.limit), .host = host};
}

/// The spec with its memory settled as fit_memory does, and whether it fits.
bool settle(EngineSpec& spec, const Node& node, const Ops& sizes, Place place, const MemoryBudget& budget) {
  if (place == Place::host)
    return plan_memory(spec, node, place, &sizes, false).total_bytes() <= budget.device;
  std::int64_t layers = fewest_offloaded(spec, node, &sizes, false, budget);
  if (layers < 0 && !spec.options.lean_backward) {
    spec.options.lean_backward = true;
    layers = fewest_offloaded(spec, node, &sizes, false, budget);
  }
  const std::int64_t most = spec.run.memory.offload == "none"
                                ? 0
                                : std::clamp<std::int64_t>(budget.host / saved_bytes(spec), 0, spec.model.L);
  spec.options.offload_layers = layers < 0 ? most : layers;
  return layers >= 0;
}

struct Job {
  RunConfig run;
  PlanOptions options;
};

/// Everything of a plan but its forecast.
Plan lay_out(const Job& job, const ModelConfig& model, const PlanDevice& device) {
  const ParallelSection& p = job.run.parallel;
  const PlanOptions& o = job.options;
  const Grid grid = make_grid(o.rank, o.ranks, p);
  Plan plan{.spec = make_spec(model, job.run, grid, compute_type(job.run, device.place)),
            .node = pretended_node(o.rank, o.ranks, per_node(o, device.rates)),
            .links = pretended_links(o, device.rates),
            .budget = {},
            .forecast = {}};
  const DryBackend dry(device.place, device.sizes, device.rates);
  plan.budget = budget_of(job.run, dry, device, o, plan.node);
  if (device.place == Place::device) plan.budget.host -= offloaded_state_bytes(plan.spec, plan.node);
  DryBackend sizes(device.place, device.sizes, device.rates);
  plan.fits = settle(plan.spec, plan.node, sizes.ops(), device.place, plan.budget);
  return plan;
}

/// A change of the job; false where it changes nothing.
struct Lever {
  std::string name;
  std::function<bool(Job&)> pull;
};
using Levers = std::vector<Lever>;

template <class Field, class Value>
bool set(Field& field, const Value& value) {
  if (field == value) return false;
  field = value;
  return true;
}

bool lower(std::int64_t& tile, std::int64_t to) {
  return (tile == 0 || tile > to) && set(tile, to);
}

/// In the order in which they are worth pulling: what costs least comes first.
Levers levers_of(const ModelConfig& model, const RunConfig& run) {
  constexpr std::int64_t kLossTile = 512, kMlpTile = 2048;
  const auto named = [](const char* key, std::int64_t n) { return key + std::to_string(n); };
  const std::int64_t groups = std::max<std::int64_t>(1, model.G / run.parallel.ulysses);
  return {
      {named("memory.loss_tile=", kLossTile),
       [](Job& j) { return lower(j.run.memory.loss_tile, kLossTile); }},
      {"memory.recompute=layer", [](Job& j) { return set(j.run.memory.recompute, "layer"); }},
      {"memory.offload=auto",
       [](Job& j) { return j.run.memory.offload == "none" && set(j.run.memory.offload, "auto"); }},
      {named("memory.mlp_tile=", kMlpTile), [](Job& j) { return lower(j.run.memory.mlp_tile, kMlpTile); }},
      {"parallel.shard=world", [](Job& j) { return set(j.run.parallel.shard, "world"); }},
      {named("memory.attention_groups=", groups),
       [groups](Job& j) { return set(j.run.memory.attention_groups, groups); }},
      {"optimizer.offload=true", [](Job& j) { return set(j.run.optimizer.offload, true); }},
      {"memory.keep_attention=false", [](Job& j) { return set(j.run.memory.keep_attention, "false"); }},
      {"optimizer.gradients=bf16", [](Job& j) { return set(j.run.optimizer.gradients, "bf16"); }},
      {"optimizer.state=bf16", [](Job& j) { return set(j.run.optimizer.state, "bf16"); }}};
}

/// A row over twice as many ranks, four times as many, ...
Levers more_ranks(const RunConfig& run, const PlanOptions& options) {
  Levers levers;
  for (int more = 2; options.ranks * more <= kMostRanks; more *= 2) {
    const int ranks = options.ranks * more;
    const std::int64_t context = run.parallel.context * more;
    levers.push_back(
        {"parallel.context=" + std::to_string(context) + " on " + std::to_string(ranks) + " ranks",
         [ranks, context](Job& j) {
           j.options.ranks = ranks;
           j.run.parallel.context = context;
           return true;
         }});
  }
  return levers;
}

enum class Verdict : std::uint8_t { fits, too_large, refused };

Verdict judge(const Job& job, const ModelConfig& model, const PlanDevice& device) {
  try {
    validate(job.run, Purpose::plan);
    return lay_out(job, model, device).fits ? Verdict::fits : Verdict::too_large;
  } catch (const Error& e) {
    if (e.code != Exit::usage) throw;
    return Verdict::refused;  // what this build does not do, or what contradicts the rest
  }
}

}  // namespace

Node pretended_node(int rank, int ranks, int ranks_per_node) {
  const int size = std::clamp(ranks_per_node, 1, ranks);
  return {.host = "node " + std::to_string(rank / size),
          .index = rank / size,
          .local_rank = rank % size,
          .local_size = size};
}

Links pretended_links(const PlanOptions& o, const Rates* rates) {
  const auto rated = [&](const char* key) { return rates == nullptr ? 0 : rates->number(key); };
  const double near = o.bandwidth_gbs > 0 ? o.bandwidth_gbs : rated("link_gbs");
  const double far = o.network_gbs > 0     ? o.network_gbs
                     : o.bandwidth_gbs > 0 ? o.bandwidth_gbs
                                           : rated("network_gbs");
  return {.near = near * kGiga, .far = far * kGiga, .latency = rated("latency_us") * kMicro};
}

Plan make_plan(const RunConfig& run, const ModelConfig& model, const PlanDevice& device,
               const PlanOptions& options) {
  Plan plan = lay_out({run, options}, model, device);
  plan.forecast =
      forecast(plan.spec, plan.node, device.place, device.sizes, device.rates, plan.links, options.document);
  return plan;
}

std::vector<std::string> levers_that_fit(const RunConfig& run, const ModelConfig& model,
                                         const PlanDevice& device, const PlanOptions& options) {
  using Some = std::vector<const Lever*>;
  const auto with = [&](const Some& some) {
    Job job{run, options};
    for (const Lever* lever : some) lever->pull(job);
    return judge(job, model, device);
  };
  const auto names_of = [](const Some& some) {
    std::vector<std::string> names;
    for (const Lever* lever : some) names.push_back(lever->name);
    return names;
  };
  const Levers levers = levers_of(model, run), ranks = more_ranks(run, options);
  Some useful;
  for (const Lever& lever : levers)
    if (Job job{run, options}; lever.pull(job)) useful.push_back(&lever);
  for (const Lever* lever : useful)
    if (with({lever}) == Verdict::fits) return names_of({lever});

  Some some;
  Verdict verdict = Verdict::too_large;
  for (std::size_t i = 0; i < useful.size() && verdict != Verdict::fits; ++i) {
    some.push_back(useful[i]);
    verdict = with(some);
    if (verdict == Verdict::refused) some.pop_back();
  }
  if (verdict == Verdict::fits) {  // leave out what turns out not to be needed
    for (std::size_t i = some.size() - 1; i-- > 0;) {
      Some fewer = some;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      if (with(fewer) == Verdict::fits) some = fewer;
    }
    return names_of(some);
  }
  for (const Lever& more : ranks)
    if (with({&more}) == Verdict::fits) return names_of({&more});
  return {};
}

}  // namespace annulus
