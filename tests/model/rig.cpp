#include "model/rig.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include "core/bf16.h"
#include "core/rng.h"

namespace annulus::test {
namespace {

Arena make_arena(Backend& backend, std::optional<Layout> layout) {
  if (layout) return Arena(backend.queue(), backend.memory(), std::move(*layout));
  return Arena(backend.queue(), backend.memory());
}

void fill(Queue& queue, ShardedState& state, const FillWeights& weights) {
  std::vector<float> values;
  for (std::size_t u = 0; u < state.units().size(); ++u) {
    const UnitState& s = state.state(static_cast<int>(u));
    for (const Segment& segment : s.segments) {
      values.resize(static_cast<std::size_t>(segment.count));
      const Tensor host = make_tensor("weights", values.data(), DType::f32, {segment.count});
      weights(*segment.parameter, segment.from, host);
      std::vector<bf16> narrowed;  // frozen weights lie in the compute type
      if (s.master.dtype == DType::bf16)
        for (const float v : values) narrowed.push_back(narrow(v));
      queue.copy(
          Lane::compute,
          narrowed.empty() ? host : make_tensor("weights", narrowed.data(), DType::bf16, {segment.count}),
          s.master.span(segment.at, segment.count));
      queue.sync(queue.mark(Lane::compute));
    }
  }
}

std::vector<float> read_back(Queue& queue, const Tensor& t) {
  std::vector<float> values(static_cast<std::size_t>(t.size()));
  queue.copy(Lane::compute, t, make_tensor("read back", values.data(), DType::f32, {t.size()}));
  queue.sync(queue.mark(Lane::compute));
  return values;
}

}  // namespace

void random_weights(const Parameter& p, std::int64_t from, const Tensor& to) {
  for (std::int64_t i = 0; i < to.size(); ++i) {
    const double x = normal(11, Draw::init, p.id, static_cast<std::uint64_t>(from + i));
    to.as<float>()[i] = static_cast<float>(p.shape.size() >= 2 ? 0.2 * x : p.init_value + 0.1 * x);
  }
}

WholeRow make_row(std::int64_t sequence, const std::vector<std::int64_t>& documents, std::int64_t vocabulary,
                  std::uint64_t stream) {
  WholeRow row;
  row.shape.sequence = sequence;
  for (std::int64_t length : documents) {
    row.shape.starts.push_back(row.shape.used);
    for (std::int64_t p = 0; p < length; ++p) {
      const auto at = static_cast<std::uint64_t>(row.shape.used + p);
      row.ids.push_back(static_cast<std::int32_t>(draw(3, Draw::test, stream, at)[0] %
                                                  static_cast<std::uint32_t>(vocabulary)));
      if (p > 0) row.targets.push_back(row.ids.back());
    }
    row.targets.push_back(-1);
    row.shape.used += length;
  }
  return row;
}

LocalRow cut(const WholeRow& row, const Grid& grid, int per_member,
             const std::vector<std::int64_t>& windows) {
  LocalRow local{RowMap(row.shape, grid.ring, grid.ulysses, per_member, windows), {}, {}, {}};
  for (const Run& run : local.map.local_runs(grid.ring_index, grid.ulysses_index))
    for (std::int64_t p = run.position; p < run.position + run.count; ++p) {
      const bool used = p < row.shape.used;
      local.ids.push_back(used ? row.ids[static_cast<std::size_t>(p)] : 0);
      local.targets.push_back(used ? row.targets[static_cast<std::size_t>(p)] : -1);
      local.positions.push_back(p - local.map.document_start(p));
    }
  return local;
}

ModelConfig tiny_config() {
  ModelConfig c;
  c.model_type = "qwen3";
  c.C = 37;
  c.F = 53;
  c.V = 101;
  c.L = 3;
  c.H = 6;
  c.G = 2;
  c.D = 10;
  c.qk_norm = true;
  c.windows = {0, 7, 0};
  c.rope.theta = 10000;
  c.max_positions = 512;
  c.init_std = 0.2;
  return c;
}

LoraConfig tiny_lora() {
  return {.rank = 3,
          .alpha = 5,
          .rslora = true,
          .targets = {Target::q, Target::v, Target::o, Target::gate, Target::up, Target::down}};
}

Rig::Rig(Backend& backend, std::unique_ptr<Comm> world, RigOptions options, std::optional<Layout> layout)
    : backend_(backend),
      options_(std::move(options)),
      world_(std::move(world)),
      grid_(make_grid(world_->rank(), world_->size(), options_.context, options_.ulysses, options_.expert)),
      arena_(make_arena(backend, std::move(layout))) {
  const int context = options_.context, ulysses = options_.ulysses, expert = options_.expert;
  const auto same_row = [&](int rank) { return rank / context; };
  context_ = world_->split_by(same_row);
  ring_ = backend_.device_comm(
      world_->split_by([&](int rank) { return rank / context * ulysses + rank % ulysses; }));
  ulysses_ = backend_.device_comm(world_->split_by([&](int rank) { return rank / ulysses; }));
  shard_ = backend_.device_comm(world_->split_by([](int) { return 0; }));
  replica_ = backend_.device_comm(world_->split_by([](int rank) { return rank; }));
  row_ = backend_.device_comm(world_->split_by(same_row));
  expert_ = backend_.device_comm(world_->split_by([=](int rank) { return rank / expert; }));
  holders_ = backend_.device_comm(world_->split_by([=](int rank) { return rank % expert; }));
  copies_ = backend_.device_comm(world_->split_by([](int rank) { return rank; }));
  const ModelConfig& c = options_.config;
  state_ = std::make_unique<ShardedState>(backend_, arena_, make_units(c, options_.model.lora), *shard_,
                                          *replica_, StateOptions{.compute = options_.model.compute},
                                          ExpertOwners{.shard = holders_.get(),
                                                       .replica = copies_.get(),
                                                       .world = world_.get(),
                                                       .part = grid_.expert_index,
                                                       .parts = expert});
  if (backend_.memory().real()) fill(backend_.queue(), *state_, options_.weights);
  const AttentionShape shape{.H = c.H,
                             .G = c.G,
                             .D = c.D,
                             .scale = 1 / std::sqrt(static_cast<double>(c.D)),
                             .groups = options_.groups};
  attention_ =
      std::make_unique<ContextAttention>(backend_, arena_, *ring_, *ulysses_, shape, options_.model.compute);
  model_ = std::make_unique<Model>(backend_, arena_, c, options_.model, *state_, *attention_, grid_,
                                   ModelGroups{.context = row_.get(), .expert = expert_.get()});
}

RowTotals Rig::over_context(RowTotals t) {
  return {.nll = context_->sum(t.nll),
          .hits = context_->sum(t.hits),
          .entropy = context_->sum(t.entropy),
          .router = t.router};
}

RowTotals Rig::train(const WholeRow& row, double scale, double aux_scale) {
  return train(cut(row, grid_, options_.per_member, options_.config.distinct_windows()), scale, aux_scale);
}

RowTotals Rig::train(const LocalRow& local, double scale, double aux_scale) {
  arena_.begin("micro");
  return over_context(model_->train_row(local, scale, aux_scale));
}

RowTotals Rig::eval(const WholeRow& row) {
  const LocalRow local = cut(row, grid_, options_.per_member, options_.config.distinct_windows());
  arena_.begin("eval");
  return over_context(model_->eval_row(local));
}

Gradients Rig::gradients() {
  arena_.begin("finish");
  state_->finish_gradients();
  backend_.queue().sync(backend_.queue().mark(Lane::compute));
  Gradients all;
  if (!backend_.memory().real()) return all;
  for (std::size_t u = 0; u < state_->units().size(); ++u) {
    if (!state_->trains(static_cast<int>(u))) continue;
    for (const Parameter& p : state_->units()[u].parameters) {
      std::vector<double> whole(static_cast<std::size_t>(p.size()), 0.0);
      const UnitState& s = state_->state(static_cast<int>(u));
      for (const Segment& segment : s.segments) {
        if (segment.parameter->name != p.name) continue;
        const std::vector<float> mine = read_back(backend_.queue(), s.grad.span(segment.at, segment.count));
        std::copy(mine.begin(), mine.end(), whole.begin() + segment.from);
      }
      world_->all_reduce(std::span(whole));  // each element lies on one rank, so the sum is exact
      all[p.name].assign(whole.begin(), whole.end());
    }
  }
  return all;
}

Outcome train_two_rows(Backend& backend, std::unique_ptr<Comm> world, const RigOptions& options,
                       std::optional<Layout> layout) {
  Rig rig(backend, std::move(world), options, std::move(layout));
  Outcome out;
  for (std::uint64_t stream : {1, 2}) {
    const RowTotals t =
        rig.train(make_row(kTinySequence, kTinyDocuments, options.config.V, stream), kTinyScale, kTinyAux);
    out.totals.nll += t.nll;
    out.totals.hits += t.hits;
    out.totals.entropy += t.entropy;
    out.totals.router.aux += t.router.aux;
    out.totals.router.load_max = std::max(out.totals.router.load_max, t.router.load_max);
  }
  out.gradients = rig.gradients();
  return out;
}

Outcome train_two_rows(const RigOptions& options, std::optional<Layout> layout) {
  const auto backend = make_cpu_backend(1);
  return train_two_rows(*backend, make_self_comm(backend->queue()), options, std::move(layout));
}

Layout plan_of_rows(const RigOptions& options, int ranks) {
  const auto real = make_cpu_backend(1);
  const auto dry = make_dry_backend(Place::host, &real->ops());
  Rig rig(*dry, make_loopback_comm(dry->queue(), 0, ranks), options);
  rig.train(make_row(kTinySequence, {kTinySequence}, options.config.V, 9), 1.0, 1.0);
  rig.gradients();
  return rig.arena().layout();
}

bool same(const RowTotals& a, const RowTotals& b) {
  return a.nll == b.nll && a.hits == b.hits && a.entropy == b.entropy && a.router.aux == b.router.aux &&
         a.router.load_max == b.router.load_max;
}

double worst_leaf(const Gradients& got, const Gradients& want) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  if (got.size() != want.size()) return kNever;
  double all = 0;
  for (const auto& [name, w] : want)
    for (float x : w) all += double(x) * x;
  double worst = 0;
  for (const auto& [name, w] : want) {
    const auto found = got.find(name);
    if (found == got.end() || found->second.size() != w.size()) return kNever;
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double d = double(found->second[i]) - w[i];
      error += d * d;
      norm += double(w[i]) * w[i];
    }
    const double relative = std::sqrt(error) / std::max(std::sqrt(norm), 1e-3 * std::sqrt(all));
    if (!std::isfinite(relative)) return kNever;
    worst = std::max(worst, relative);
  }
  return worst;
}

}  // namespace annulus::test
