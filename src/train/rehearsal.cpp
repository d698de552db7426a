#include "train/rehearsal.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>
#include "core/bf16.h"
#include "core/rng.h"
#include "train/clock.h"
#include "train/flops.h"
#include "train/forecast.h"
#include "train/memory_plan.h"
#include "train/staging.h"

namespace annulus {
namespace {

/// The rank's part of a row of documents of one length, with random tokens.
LocalRow random_row(const EngineSpec& s, std::int64_t document) {
  LocalRow row = row_of_documents(s, document);
  const RowShape& shape = row.map.shape();
  const auto token = [&](std::int64_t p) {
    return static_cast<std::int32_t>(
        draw(1, Draw::test, static_cast<std::uint64_t>(s.grid.data_index), static_cast<std::uint64_t>(p))[0] %
        static_cast<std::uint32_t>(s.model.V));
  };
  for (const Run& run : row.map.local_runs(s.grid.ring_index, s.grid.ulysses_index))
    for (std::int64_t p = run.position; p < run.position + run.count; ++p) {
      const std::int64_t start = row.map.document_start(p);
      const bool used = p < shape.used, last = p + 1 >= shape.used || row.map.document_start(p + 1) != start;
      row.ids.push_back(used ? token(p) : 0);
      row.targets.push_back(used && !last ? token(p + 1) : -1);
      row.positions.push_back(p - start);
    }
  return row;
}

/// One block of random numbers, repeated: independent weights would take the host minutes, and time and
/// memory do not depend on them.
class RepeatedBlock {
 public:
  RepeatedBlock(DType type, float std, float value) : width_(bytes_of(type)) {
    bytes_.resize(static_cast<std::size_t>(kElements * width_));
    for (std::int64_t i = 0; i < kElements; ++i) {
      const double drawn = std > 0 ? std * normal(1, Draw::init, 0, static_cast<std::uint64_t>(i)) : value;
      if (type == DType::f32)
        reinterpret_cast<float*>(bytes_.data())[i] = static_cast<float>(drawn);
      else
        reinterpret_cast<bf16*>(bytes_.data())[i] = narrow(static_cast<float>(drawn));
    }
  }
  /// Elements [from, from + count) of the endless repetition.
  void copy(std::int64_t from, std::int64_t count, char* to) const {
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t at = (from + done) % kElements, n = std::min(count - done, kElements - at);
      std::memcpy(to + done * width_, bytes_.data() + at * width_, static_cast<std::size_t>(n * width_));
      done += n;
    }
  }

 private:
  static constexpr std::int64_t kElements = 1 << 20;
  std::int64_t width_;
  std::vector<char> bytes_;
};

void fill_repeating(ShardedState& state, Staging& staging) {
  std::map<std::tuple<DType, float, float>, RepeatedBlock> blocks;
  for (int u = 0; u < static_cast<int>(state.units().size()); ++u) {
    const UnitState& s = state.state(u);
    for (const Segment& part : s.segments) {
      const Parameter& p = *part.parameter;
      // A uniform number within b has the deviation b / sqrt(3).
      const float deviation = p.init_bound > 0 ? p.init_bound / std::sqrt(3.f) : p.init_std;
      const DType type = s.master.dtype;
      const auto& block =
          blocks.try_emplace({type, deviation, p.init_value}, type, deviation, p.init_value).first->second;
      staging.fill(s.master.span(part.at, part.count), [&](std::int64_t at, const Tensor& host) {
        block.copy(part.from + at, host.size(), static_cast<char*>(host.data));
      });
    }
  }
}

double median_of(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds.empty() ? 0 : seconds[seconds.size() / 2];
}

double waited_in(const Profile& profile) {
  double sum = 0;
  for (const auto& [kind, time] : profile.operations) sum += kind.starts_with("waiting") ? time.seconds : 0;
  return sum;
}

/// Everybody's figures, by process.
std::vector<RankFigures> gather(Comm& started, const RankFigures& mine) {
  constexpr double kNano = 1e-9;
  const std::int64_t numbers[] = {mine.rank,
                                  std::llround(mine.seconds / kNano),
                                  std::llround(mine.waited / kNano),
                                  mine.peak_bytes,
                                  mine.device_used_bytes,
                                  mine.pinned_bytes};
  const std::vector<std::int64_t> all = started.all_gather(std::span(numbers));
  std::vector<RankFigures> ranks;
  for (auto n = all.begin(); n != all.end(); n += std::size(numbers))
    ranks.push_back({.rank = static_cast<int>(n[0]),
                     .seconds = static_cast<double>(n[1]) * kNano,
                     .waited = static_cast<double>(n[2]) * kNano,
                     .peak_bytes = n[3],
                     .device_used_bytes = n[4],
                     .pinned_bytes = n[5]});
  return ranks;
}

}  // namespace

double RehearsalReport::median() const {
  return median_of(seconds);
}

RehearsalReport rehearse(Backend& real, const EngineSpec& spec, const Node& node, const Peers& peers,
                         const RehearsalOptions& options) {
  ProfiledBackend profiled(real);
  Backend& backend = options.profile ? static_cast<Backend&>(profiled) : real;
  RehearsalReport report;
  report.pretended = peers.pretended;
  Layout layout = plan_memory(spec, node, backend.memory().place(), &real.ops(), false);
  report.planned_bytes = layout.total_bytes();
  auto arena = std::make_unique<Arena>(backend.queue(), backend.memory(), std::move(layout));
  const std::string& shard = spec.run.parallel.shard;
  Groups groups = peers.pretended
                      ? make_loopback_groups(backend, spec.grid, node, shard, {.links = peers.links})
                      : make_groups(backend, peers.started, spec.grid, node, shard);
  Comm& world = *groups.world;
  Engine engine(backend, std::move(groups), std::move(arena), spec, [] {});
  {
    Staging staging(backend);
    fill_repeating(engine.state(), staging);
  }
  engine.masters_filled();
  const LocalRow row = random_row(spec, options.document);
  const auto targets = static_cast<double>(world.sum(row.target_count()));
  const double tokens = static_cast<double>(row.map.shape().used) * spec.grid.data;
  report.flops = model_flops(spec.model, spec.options.lora, row.map.shape());
  for (const Unit& unit : engine.state().units())
    for (const Parameter& p : unit.parameters) report.parameters += p.size();

  std::int64_t step = 0;
  std::vector<double> mine;
  const auto run_step = [&] {
    peers.started.barrier();
    const double begun = steady_seconds();
    const double nll = engine.micro(row, 1.0 / targets, spec.aux_coefficient / tokens).nll;
    report.grad_norm = engine.update(1e-6, ++step).norm;
    engine.settle();
    const double seconds = steady_seconds() - begun;
    report.loss = world.sum(nll) / targets;
    return seconds;
  };
  for (std::int64_t i = 0; i < options.warmup; ++i) run_step();
  profiled.take();
  for (std::int64_t i = 0; i < options.steps; ++i) {
    mine.push_back(run_step());
    report.profile = profiled.take();
  }
  if (!std::isfinite(report.loss) || !std::isfinite(report.grad_norm))
    fail("rehearsal", "the loss or the gradient is not finite, so the times mean nothing");
  if (options.profile) report.profiled_seconds = mine.back();
  report.seconds = mine;
  peers.started.all_reduce(std::span<double>(report.seconds), Reduce::max);
  report.ranks = gather(peers.started, {.rank = spec.grid.rank,
                                        .seconds = median_of(mine),
                                        .waited = waited_in(report.profile),
                                        .peak_bytes = engine.arena().peak_bytes(),
                                        .device_used_bytes = backend.device_used_bytes(),
                                        .pinned_bytes = engine.host_bytes()});
  for (const RankFigures& r : report.ranks) {
    report.peak_bytes = std::max(report.peak_bytes, r.peak_bytes);
    report.device_used_bytes = std::max(report.device_used_bytes, r.device_used_bytes);
    report.pinned_bytes = std::max(report.pinned_bytes, r.pinned_bytes);
  }
  if (options.check > 0)
    engine.probe(row, 1.0 / targets, [&](const AttentionTensors& tensors) {
      report.check = spot_check(backend, tensors, spec.grid.ring_index,
                                1.0 / std::sqrt(static_cast<double>(spec.model.D)), options.check);
    });
  return report;
}

}  // namespace annulus
