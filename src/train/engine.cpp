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
  std::vector<Unit> units = make_units(spec.model);
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

/// In a ring every temporary of the attention's backward is of one group of heads: as few groups as keep its
/// f32 dQ, which the others follow, within a gibibyte. A call of so many tokens still fills a device.
std::int64_t groups_for(std::int64_t tokens, const HeadShare& share, std::int64_t D, const Grid& grid) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  std::int64_t groups = 1;
  while (grid.ring > 1 && groups < share.G &&
         (share.G % groups != 0 || tokens * share.H * D * bytes_of(DType::f32) / groups > kMost))
    ++groups;
  return groups;
}

}  // namespace

EngineSpec make_spec(const ModelConfig& model, const RunConfig& run, const Grid& grid, DType compute) {
  if (model.H % grid.ulysses != 0)
    usage_error("parallel.ulysses is " + std::to_string(grid.ulysses) +
                ", which does not divide the model's " + std::to_string(model.H) +
                " query heads; give one of their divisors");
  const std::int64_t groups = run.memory.attention_groups;
  const HeadShare share = share_heads(model.H, model.G, grid.ulysses);
  if (groups > 0 && share.G % groups != 0)
    usage_error("memory.attention_groups is " + std::to_string(groups) + ", which does not divide the " +
                std::to_string(share.G) + " key/value heads of a rank; give one of their divisors");
  EngineSpec s{.model = model, .run = run, .grid = grid, .options = {}, .state = {}};
  s.options.compute = compute;
  s.options.keep_attention = run.memory.keep_attention != "false";
  s.options.recompute = run.memory.recompute == "layer";
  // Large enough that the weight gradients, which each tile reads and writes once, cost little beside it.
  const bool device = compute == DType::bf16;
  s.options.mlp_tile = tile(run.memory.mlp_tile, std::int64_t{1} << (device ? 28 : 26), 2 * model.F, 1024);
  s.options.loss_tile = tile(run.memory.loss_tile, std::int64_t{1} << (device ? 29 : 26), model.V, 128);
  s.options.lean_backward = grid.context() > 1;
  s.options.sequence = run.data.sequence;
  s.state.compute = compute;
  s.state.state = run.optimizer.state == "bf16" ? DType::bf16 : DType::f32;
  s.state.gradients = run.optimizer.gradients == "bf16" ? DType::bf16 : DType::f32;
  s.state.offload = run.optimizer.offload;
  // Rows of one document balance by the zigzag; packed rows are dealt by work.
  s.per_member = run.data.packing == "bfd" || run.data.packing == "bfd_split" ? 4 : 1;
  if (groups == 0) {
    const std::int64_t tokens = RowMap::padded(run.data.sequence, grid.ring, grid.ulysses, s.per_member);
    s.run.memory.attention_groups = groups_for(tokens / grid.ring, share, model.D, grid);
  }
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
      optimizer_(backend, *arena_, state_, spec.run.optimizer, spec.run.train.seed),
      attention_(backend, *arena_, *groups_.ring, *groups_.ulysses,
                 {.H = spec.model.H,
                  .G = spec.model.G,
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

void Engine::probe(const LocalRow& row, double scale, const AttentionProbe& look) {
  arena_->begin("probe");
  model_.probe_row(row, scale, spec_.model.L - 1, look);
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
  optimizer_.update(lr, result.factor, step);
  state_.zero_gradients();
  return result;
}

}  // namespace annulus
