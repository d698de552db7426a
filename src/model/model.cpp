#include "model/model.h"
#include <algorithm>
#include <optional>
#include <span>
#include "model/head.h"
#include "model/layer.h"
#include "model/row_loader.h"

namespace annulus {
namespace {

/// Sums on the device: nll, hits, entropy.
constexpr std::int64_t kSums = 3;

}  // namespace

struct Model::Body {
  Body(Backend& backend, Arena& arena, const ModelConfig& c, ModelOptions o, ShardedState& state,
       ContextAttention& attention, const Grid& g, ModelGroups groups)
      : config(c),
        options(std::move(o)),
        grid(g),
        store(backend, arena, c.L, options.offload_layers),
        host(backend.queue(), backend.pinned()),
        loader(backend, c.distinct_windows(), c.E > 0),
        work{.backend = backend,
             .queue = backend.queue(),
             .ops = backend.ops(),
             .arena = arena,
             .state = state,
             .attention = attention,
             .store = store,
             .config = config,
             .options = options,
             .inv_freq = {}} {
    need(static_cast<std::int64_t>(config.windows.size()) == config.L, "model: one window a layer");
    const RopeFrequencies rope = rope_frequencies(config.rope, config.D);
    const auto n = static_cast<std::int64_t>(rope.inv_freq.size());
    work.rope_factor = rope.factor;
    work.inv_freq = arena.keep(Region::weights, "inv_freq", DType::f64, {n});
    const Tensor from = host.keep(Region::weights, "inv_freq", DType::f64, {n});
    if (backend.pinned().real()) std::copy(rope.inv_freq.begin(), rope.inv_freq.end(), from.as<double>());
    work.queue.copy(Lane::compute, from, work.inv_freq);
    totals = host.keep(Region::workspace, "totals", DType::f64, {kSums});

    if (config.E > 0) {
      need(groups.context != nullptr && groups.expert != nullptr, "model: experts need their groups");
      experts.emplace(backend, arena, *groups.expert, config.E, config.K, options.expert_tile,
                      options.imbalance);
      router.emplace(backend, arena, *groups.context, config);
      work.experts = &*experts;
      work.router = &*router;
    }
    for (std::int64_t l = 0; l < config.L; ++l)
      layers.emplace_back(work, l, layer_index(config, options.lora, l));
  }

  void edge() const {
    if (options.at_layer) options.at_layer();
  }

  /// Through the layers [first, last).
  RowTotals run(const LocalRow&, double scale, double aux_scale, bool training, std::int64_t first,
                std::int64_t last);

  ModelConfig config;
  ModelOptions options;
  Grid grid;
  ActivationStore store;
  Arena host;
  RowLoader loader;
  std::optional<ExpertGroup> experts;
  std::optional<RouterStatistics> router;
  Work work;
  Tensor totals, nll;  // pinned
  std::vector<Layer> layers;
};

RowTotals Model::Body::run(const LocalRow& local, double scale, double aux_scale, bool training,
                           std::int64_t first, std::int64_t last) {
  need(options.sequence == 0 || local.map.shape().sequence == options.sequence,
       "model: the row is not of the run's sequence length");
  const RowInputs row = loader.load(work.arena, local, grid, training && work.state.trains(kEmbedUnit));
  RowTotals result;
  if (training && router) router->begin();
  Tensor x = embed_forward(work, row);
  const std::span<Layer> passed(layers.data() + first, static_cast<std::size_t>(last - first));
  for (Layer& layer : passed) {
    edge();
    x = layer.forward(row, x, training);
  }
  edge();

  const Tensor sums = work.arena.take(Region::workspace, "sums", DType::f64, {kSums});
  work.queue.zero(Lane::compute, sums);
  const Tensor dx = training ? work.take("dx", {row.tokens, config.C}) : Tensor{};
  if (!nll) nll = host.keep(Region::workspace, "nll", DType::f32, {row.tokens});
  loss(work, row, x, scale, dx, {.sums = sums, .nll = nll});
  work.queue.copy(Lane::compute, sums, totals);
  const Mark summed = work.queue.mark(Lane::compute);
  work.give(sums);
  work.give(x);

  if (training) {
    const std::int64_t used = local.map.shape().used;
    if (router) result.router = router->finish(used, aux_scale * static_cast<double>(used));
    for (auto layer = passed.rbegin(); layer != passed.rend(); ++layer) {
      edge();
      layer->backward(row, dx);
    }
    edge();
    embed_backward(work, row, dx);
    if (router) router->end();
    work.give(dx);
    work.state.release_reduced();
  }
  work.state.drop_unused();
  loader.give(work.arena, row);

  work.queue.sync(summed);
  if (!work.backend.pinned().real()) return {};
  const double* sum = totals.as<double>();
  result.nll = sum[0];
  result.hits = sum[1];
  result.entropy = sum[2];
  return result;
}

Model::Model(Backend& backend, Arena& arena, const ModelConfig& config, ModelOptions options,
             ShardedState& state, ContextAttention& attention, const Grid& grid, ModelGroups groups)
    : body_(std::make_unique<Body>(backend, arena, config, std::move(options), state, attention, grid,
                                   groups)) {}

Model::~Model() = default;

RowTotals Model::train_row(const LocalRow& row, double scale, double aux_scale) {
  return body_->run(row, scale, aux_scale, true, 0, body_->config.L);
}

RowTotals Model::eval_row(const LocalRow& row) {
  return body_->run(row, 0.0, 0.0, false, 0, body_->config.L);
}

RowTotals Model::probe_row(const LocalRow& row, double scale, std::int64_t layer,
                           const AttentionProbe& probe) {
  body_->work.probe = &probe;
  const RowTotals totals = body_->run(row, scale, 0.0, true, layer, layer + 1);
  body_->work.probe = nullptr;
  return totals;
}

std::span<const float> Model::nll() const {
  if (!body_->nll || !body_->work.backend.pinned().real()) return {};
  return {body_->nll.as<float>(), static_cast<std::size_t>(body_->nll.size())};
}

void Model::abandon() {
  body_->work.probe = nullptr;
  body_->store.abandon();
  body_->work.state.abandon();
  body_->work.arena.abandon();
}

std::int64_t Model::host_bytes() const {
  return body_->store.host_bytes() + body_->loader.host_bytes() + body_->host.peak_bytes() +
         (body_->experts ? body_->experts->host_bytes() : 0);
}

}  // namespace annulus
