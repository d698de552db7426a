#include "train/engine.h"
#include <algorithm>
#include <cmath>

namespace annulus {
namespace {

/// Colors of the groups that a rank is in, each the same number for all its members.
struct Colors {
  int context, ring, ulysses;
};
Colors colors_of(const Grid& g) {
  return {g.data_index, g.data_index * g.ulysses + g.ulysses_index, g.data_index * g.ring + g.ring_index};
}

/// Color of the shard group: ranks that hold one whole copy of the state between them.
int shard_color(const Grid& g, const Node& node, const std::string& shard) {
  if (shard == "world") return 0;
  if (shard == "node") return node.index;
  return g.rank;
}

std::vector<Unit> units_of(const EngineSpec& spec) {
  std::vector<Unit> units = make_units(spec.model, spec.options.lora);
  if (spec.frozen)
    for (Unit& unit : units)
      for (Parameter& p : unit.parameters) p.trained = false;
  return units;
}

/// `elements`: of the widest temporary of a tile.
std::int64_t tile(std::int64_t asked, std::int64_t elements, std::int64_t columns, std::int64_t least) {
  if (asked > 0) return asked;
  return std::max(least, elements / std::max<std::int64_t>(1, columns) / 128 * 128);
}

}  // namespace

EngineSpec make_spec(const ModelConfig& model, const RunConfig& run, const Grid& grid, DType compute) {
  const std::int64_t groups = run.memory.attention_groups;
  if (model.G % groups != 0)
    usage_error("memory.attention_groups is " + std::to_string(groups) +
                ", which does not divide the model's " + std::to_string(model.G) +
                " key/value heads; give one of their divisors");
  EngineSpec s{.model = model, .run = run, .grid = grid, .options = {}, .state = {}};
  s.options.compute = compute;
  s.options.lora = lora_config(run.lora);
  s.options.keep_attention = run.memory.keep_attention != "false";
  s.options.recompute = run.memory.recompute == "layer";
  // Large enough that the weight gradients, which each tile reads and writes once, cost little beside it.
  const bool device = compute == DType::bf16;
  s.options.mlp_tile = tile(run.memory.mlp_tile, std::int64_t{1} << (device ? 28 : 26), 2 * model.F, 1024);
  s.options.loss_tile = tile(run.memory.loss_tile, std::int64_t{1} << (device ? 29 : 26), model.V, 128);
  s.options.lean_backward = grid.ring > 1;
  s.options.sequence = run.data.sequence;
  s.state.compute = compute;
  s.state.state = run.optimizer.state == "bf16" ? DType::bf16 : DType::f32;
  s.state.gradients = run.optimizer.gradients == "bf16" ? DType::bf16 : DType::f32;
  // Rows of one document balance by the zigzag; packed rows are dealt by work.
  s.per_member = run.data.packing == "bfd" || run.data.packing == "bfd_split" ? 4 : 1;
  return s;
}

Groups make_groups(Backend& backend, const Comm& world, const Grid& grid, const Node& node,
                   const std::string& shard) {
  const Colors c = colors_of(grid);
  const auto group = [&](int color) { return backend.device_comm(world.split(color)); };
  Groups g;
  g.world = group(0);
  g.context = group(c.context);
  g.ring = group(c.ring);
  g.ulysses = group(c.ulysses);
  g.shard = group(shard_color(grid, node, shard));
  g.replica = group(g.shard->rank());
  need(g.ring->rank() == grid.ring_index && g.ring->size() == grid.ring, "the ring group follows the grid");
  const std::int64_t copies = g.replica->size(), members = g.shard->size();
  if (world.size() != copies * members)
    usage_error("parallel.shard=node needs the same number of ranks on every host, or parallel.shard=world");
  return g;
}

Groups make_loopback_groups(Backend& backend, const Grid& grid, const Node& node, const std::string& shard) {
  const auto group = [&](int rank, int size) {
    return backend.device_comm(make_loopback_comm(backend.queue(), rank, size));
  };
  Groups g;
  g.world = group(grid.rank, grid.world);
  g.context = group(grid.ring_index * grid.ulysses + grid.ulysses_index, grid.context());
  g.ring = group(grid.ring_index, grid.ring);
  g.ulysses = group(grid.ulysses_index, grid.ulysses);
  const int members = shard == "world" ? grid.world : shard == "node" ? node.local_size : 1;
  g.shard = group(shard == "world" ? grid.rank : shard == "node" ? node.local_rank : 0, members);
  g.replica = group(grid.rank / members, grid.world / members);
  return g;
}

Engine::Engine(Backend& backend, Groups groups, std::unique_ptr<Arena> arena, const EngineSpec& spec,
               std::function<void()> at_layer)
    : backend_(backend),
      groups_(std::move(groups)),
      arena_(std::move(arena)),
      spec_(spec),
      state_(backend, *arena_, units_of(spec), *groups_.shard, *groups_.replica, spec.state),
      attention_(backend, *arena_, *groups_.ring,
                 {.H = spec.model.H / spec.grid.ulysses,
                  .G = std::max<std::int64_t>(1, spec.model.G / spec.grid.ulysses),
                  .D = spec.model.D,
                  .scale = 1.0 / std::sqrt(static_cast<double>(spec.model.D)),
                  .groups = spec.run.memory.attention_groups},
                 spec.options.compute),
      model_(
          backend, *arena_, spec.model,
          [&] {
            ModelOptions o = spec.options;
            o.at_layer = std::move(at_layer);
            return o;
          }(),
          state_, attention_, spec.grid) {}

Engine::~Engine() = default;

void Engine::settle() {
  Queue& queue = backend_.queue();
  for (int l = 0; l < kLanes; ++l) queue.sync(queue.mark(static_cast<Lane>(l)));
}

void Engine::abandon() {
  settle();
  model_.abandon();
}

RowTotals Engine::micro(const LocalRow& row, double scale) {
  arena_->begin("micro");
  return model_.train_row(row, scale);
}

RowTotals Engine::eval(const LocalRow& row) {
  arena_->begin("eval");
  return model_.eval_row(row);
}

double Engine::finish_gradients() {
  arena_->begin("update");
  state_.finish_gradients();
  return std::sqrt(state_.gradient_square_sum());
}

UpdateResult Engine::update(double lr, std::int64_t step) {
  const OptimizerSection& o = spec_.run.optimizer;
  UpdateResult result;
  result.norm = finish_gradients();
  if (o.clip > 0) result.factor = std::min(1.0, o.clip / (result.norm + 1e-6));
  for (int unit = 0; unit < static_cast<int>(state_.units().size()); ++unit) {
    const UnitState& s = state_.state(unit);
    if (!s.grad) continue;
    for (const Segment& part : s.segments) {
      const Parameter& p = *part.parameter;
      backend_.ops().adamw(Lane::compute, {.grad = s.grad.span(part.at, part.count),
                                           .master = s.master.span(part.at, part.count),
                                           .m = s.m.span(part.at, part.count),
                                           .v = s.v.span(part.at, part.count),
                                           .weight = {},
                                           .lr = lr,
                                           .beta1 = o.beta1,
                                           .beta2 = o.beta2,
                                           .eps = o.eps,
                                           .decay = p.decay ? o.weight_decay : 0.0,
                                           .grad_scale = result.factor,
                                           .step = step,
                                           .seed = static_cast<std::uint64_t>(spec_.run.train.seed),
                                           .parameter = p.id,
                                           .from = part.from});
    }
  }
  state_.zero_gradients();
  return result;
}

}  // namespace annulus
