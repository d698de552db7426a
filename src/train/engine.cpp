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

/// Members of an experts' shard group: those of a shard group of `members` ranks that hold the same experts.
int expert_members(int members, int expert) {
  if (members % expert == 0) return members / expert;
  if (expert % members == 0) return 1;
  usage_error("parallel.expert=" + std::to_string(expert) + " and the " + std::to_string(members) +
              " ranks that share the weights (parallel.shard) do not divide one another: choose a "
              "parallel.expert that does, or another parallel.shard");
}

std::vector<Unit> units_of(const EngineSpec& spec) {
  std::vector<Unit> units = make_units(spec.model, spec.options.lora);
  if (spec.frozen)
    for (Unit& unit : units)
      for (Parameter& p : unit.parameters) p.trained = false;
  return units;
}

void check_experts(const ModelConfig& model, const Grid& grid) {
  if (grid.expert == 1) return;
  if (model.E == 0)
    usage_error("parallel.expert is " + std::to_string(grid.expert) +
                ", but the model has no experts (model_type " + model.model_type + "); give 1");
  if (model.E % grid.expert != 0)
    usage_error("parallel.expert is " + std::to_string(grid.expert) + ", which does not divide the model's " +
                std::to_string(model.E) + " experts; give one of their divisors");
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
  check_experts(model, grid);
  EngineSpec s{.model = model, .run = run, .grid = grid, .options = {}, .state = {}};
  s.options.compute = compute;
  s.options.lora = lora_config(run.lora, model);
  s.options.keep_attention = run.memory.keep_attention != "false";
  s.options.recompute = run.memory.recompute == "layer";
  // Large enough that the weight gradients, which each tile reads and writes once, cost little beside it.
  const bool device = compute == DType::bf16;
  s.options.mlp_tile = tile(run.memory.mlp_tile, std::int64_t{1} << (device ? 28 : 26), 2 * model.F, 1024);
  s.options.loss_tile = tile(run.memory.loss_tile, std::int64_t{1} << (device ? 29 : 26), model.V, 128);
  // The rows of a tile: expanded twice, and the products of gate, up and down.
  s.options.expert_tile = tile(run.memory.mlp_tile, std::int64_t{1} << (device ? 30 : 26),
                               model.K * (2 * model.C + 3 * model.Fe), 256);
  s.options.imbalance = run.moe.imbalance;
  // A frozen router learns nothing from the auxiliary loss: it is off unless asked for.
  const double own = run.lora.rank > 0 ? 0.0 : model.aux_coefficient;
  s.aux_coefficient = run.moe.aux_coefficient < 0 ? own : run.moe.aux_coefficient;
  if (model.E == 0) s.aux_coefficient = 0;
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
  g.expert = group(grid.rank / grid.expert);
  need(g.ring->rank() == grid.ring_index && g.ring->size() == grid.ring, "the ring group follows the grid");
  const std::int64_t copies = g.replica->size(), members = g.shard->size();
  if (world.size() != copies * members)
    usage_error("parallel.shard=node needs the same number of ranks on every host, or parallel.shard=world");
  if (grid.expert == 1) return g;
  const int sharers = expert_members(g.shard->size(), grid.expert);
  g.expert_shard = group(shard_color(grid, node, shard) * grid.expert + grid.expert_index);
  g.expert_replica = group(g.expert_shard->rank() * grid.expert + grid.expert_index);
  need(g.expert_shard->size() == sharers &&
           std::int64_t{sharers} * g.expert_replica->size() * grid.expert == world.size(),
       "experts are held by ranks of consecutive numbers on every host");
  return g;
}

Groups make_loopback_groups(Backend& backend, const Grid& grid, const Node& node, const std::string& shard,
                            const Pretence& pretence) {
  // Members are `stride` ranks of the job apart, the first of them is `first`.
  const auto group = [&](int rank, int size, int first, int stride) {
    std::vector<int> nodes;
    for (int i = 0; i < size; ++i) nodes.push_back((first + i * stride) / node.local_size);
    return backend.device_comm(
        make_loopback_comm(backend.queue(), rank, std::move(nodes), pretence.traffic, pretence.links));
  };
  const int row = grid.data_index * grid.context();  // first rank of those that share the row
  Groups g;
  g.world = group(grid.rank, grid.world, 0, 1);
  g.context = group(grid.rank - row, grid.context(), row, 1);
  g.ring = group(grid.ring_index, grid.ring, row + grid.ulysses_index, grid.ulysses);
  g.ulysses = group(grid.ulysses_index, grid.ulysses, grid.rank - grid.ulysses_index, 1);
  const int members = shard == "world" ? grid.world : shard == "node" ? node.local_size : 1;
  const int piece = shard == "world" ? grid.rank : shard == "node" ? node.local_rank : 0;
  g.shard = group(piece, members, grid.rank - piece, 1);
  g.replica = group(grid.rank / members, grid.world / members, grid.rank % members, members);
  g.expert = group(grid.expert_index, grid.expert, grid.rank - grid.expert_index, 1);
  if (grid.expert == 1) return g;
  // Holders of the same experts are `expert` ranks apart.
  const int holders = grid.world / grid.expert, holder = grid.rank / grid.expert;
  const int sharers = expert_members(members, grid.expert);
  g.expert_shard = group(holder % sharers, sharers, grid.rank - holder % sharers * grid.expert, grid.expert);
  g.expert_replica = group(holder / sharers, holders / sharers,
                           grid.rank - holder / sharers * sharers * grid.expert, sharers * grid.expert);
  return g;
}

Engine::Engine(Backend& backend, Groups groups, std::unique_ptr<Arena> arena, const EngineSpec& spec,
               std::function<void()> at_layer)
    : backend_(backend),
      groups_(std::move(groups)),
      arena_(std::move(arena)),
      spec_(spec),
      state_(backend, *arena_, units_of(spec), *groups_.shard, *groups_.replica, spec.state,
             {.shard = (groups_.expert_shard ? groups_.expert_shard : groups_.shard).get(),
              .replica = (groups_.expert_replica ? groups_.expert_replica : groups_.replica).get(),
              .world = groups_.world.get(),
              .part = spec.grid.expert_index,
              .parts = spec.grid.expert}),
      optimizer_(backend, *arena_, state_, spec.run.optimizer, spec.run.train.seed),
      attention_(backend, *arena_, *groups_.ring, *groups_.ulysses,
                 {.H = spec.model.H,
                  .G = spec.model.G,
                  .D = spec.model.D,
                  .scale = 1.0 / std::sqrt(static_cast<double>(spec.model.D)),
                  .groups = spec.run.memory.attention_groups},
                 spec.options.compute),
      model_(backend, *arena_, spec.model,
             [&] {
               ModelOptions o = spec.options;
               o.at_layer = std::move(at_layer);
               return o;
             }(),
             state_, attention_, spec.grid,
             {.context = groups_.context.get(), .expert = groups_.expert.get()}) {}

Engine::~Engine() = default;

void Engine::settle() {
  Queue& queue = backend_.queue();
  for (int l = 0; l < kLanes; ++l) queue.sync(queue.mark(static_cast<Lane>(l)));
}

void Engine::abandon() {
  settle();
  model_.abandon();
}

RowTotals Engine::micro(const LocalRow& row, double scale, double aux_scale) {
  arena_->begin("micro");
  return model_.train_row(row, scale, aux_scale);
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
  if (!std::isfinite(result.norm)) return result;
  if (o.clip > 0) result.factor = std::min(1.0, o.clip / (result.norm + 1e-6));
  optimizer_.update(lr, result.factor, step);
  state_.zero_gradients();
  return result;
}

}  // namespace annulus
