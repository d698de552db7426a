#include "train/rehearsal.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
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
    return static_cast<std::int32_t>(draw(1, Draw::test, 0, static_cast<std::uint64_t>(p))[0] %
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

std::string line(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

}  // namespace

double RehearsalReport::median() const {
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  return sorted.empty() ? 0 : sorted[sorted.size() / 2];
}

RehearsalReport rehearse(Backend& real, const EngineSpec& spec, const Node& node,
                         const RehearsalOptions& options) {
  ProfiledBackend profiled(real);
  Backend& backend = options.profile ? static_cast<Backend&>(profiled) : real;
  RehearsalReport report;
  Layout layout = plan_memory(spec, node, backend.memory().place(), &real.ops(), false);
  report.planned_bytes = layout.total_bytes();
  auto arena = std::make_unique<Arena>(backend.queue(), backend.memory(), std::move(layout));
  Engine engine(
      backend,
      make_loopback_groups(backend, spec.grid, node, spec.run.parallel.shard, {.links = options.links}),
      std::move(arena), spec, [] {});
  {
    Staging staging(backend);
    fill_repeating(engine.state(), staging);
  }
  engine.masters_filled();
  const LocalRow row = random_row(spec, options.document);
  const double targets = static_cast<double>(row.target_count()) * spec.grid.context();
  report.flops = model_flops(spec.model, spec.options.lora, row.map.shape());
  for (const Unit& unit : engine.state().units())
    for (const Parameter& p : unit.parameters) report.parameters += p.size();

  std::int64_t step = 0;
  const auto run_step = [&] {
    const double begun = steady_seconds();
    const double aux_scale = spec.aux_coefficient / static_cast<double>(row.map.shape().used);
    report.loss = engine.micro(row, 1.0 / targets, aux_scale).nll / static_cast<double>(row.target_count());
    report.grad_norm = engine.update(1e-6, ++step).norm;
    engine.settle();
    return steady_seconds() - begun;
  };
  for (std::int64_t i = 0; i < options.warmup; ++i) run_step();
  profiled.take();
  for (std::int64_t i = 0; i < options.steps; ++i) {
    report.seconds.push_back(run_step());
    report.profile = profiled.take();
    report.profiled_seconds = report.seconds.back();
  }
  if (!std::isfinite(report.loss) || !std::isfinite(report.grad_norm))
    fail("rehearsal", "the loss or the gradient is not finite, so the times mean nothing");
  report.peak_bytes = engine.arena().peak_bytes();
  report.device_used_bytes = backend.device_used_bytes();
  report.pinned_bytes = engine.host_bytes();
  if (options.check > 0)
    engine.probe(row, 1.0 / targets, [&](const AttentionTensors& tensors) {
      report.check = spot_check(backend, tensors, spec.grid.ring_index,
                                1.0 / std::sqrt(static_cast<double>(spec.model.D)), options.check);
    });
  return report;
}

std::string describe(const RehearsalReport& r, const EngineSpec& spec, double peak_flops) {
  const double t = r.median(), tokens = static_cast<double>(spec.run.data.sequence);
  const double ranks = spec.grid.context();
  std::string text =
      line("%.3f s/step, %.0f tokens/s, %.0f tokens/s per rank", t, tokens / t, tokens / t / ranks);
  text += line(", %.1f model TFLOP/s per rank", r.flops / t / ranks * 1e-12);
  if (peak_flops > 0) text += line(", MFU %.1f %%", 100 * r.flops / t / ranks / peak_flops);
  text += line("\nmemory: arena %.2f GB (planned %.2f), device in all %.2f GB, pinned host %.2f GB",
               static_cast<double>(r.peak_bytes) * 1e-9, static_cast<double>(r.planned_bytes) * 1e-9,
               static_cast<double>(r.device_used_bytes) * 1e-9, static_cast<double>(r.pinned_bytes) * 1e-9);
  text += line("\nloss %.4f", r.loss);
  if (spec.grid.world == 1) text += line(", gradient norm %.4g", r.grad_norm);  // pretended sums have no norm
  text += "; steps:";
  for (double s : r.seconds) text += line(" %.3f", s);
  if (r.check) text += "\n" + describe(*r.check);
  if (r.profile.empty()) return text;
  double known = 0;
  std::vector<std::pair<std::string, OpTime>> sorted(r.profile.begin(), r.profile.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  text += "\nwhere the time goes:";
  for (const auto& [kind, time] : sorted) {
    known += time.seconds;
    text += line("\n  %-20s %9.2f ms %5.1f %%  %6lld calls", kind.c_str(), time.seconds * 1e3,
                 100 * time.seconds / r.profiled_seconds, static_cast<long long>(time.calls));
  }
  text += line("\n  %-20s %9.2f ms %5.1f %%", "between operations", (r.profiled_seconds - known) * 1e3,
               100 * (1 - known / r.profiled_seconds));
  return text;
}

}  // namespace annulus
