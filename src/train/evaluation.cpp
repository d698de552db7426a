#include "train/evaluation.h"
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include "train/clock.h"

namespace annulus {
namespace {

/// Sums of nll and counts of targets by position in the document.
class Buckets {
 public:
  Buckets(std::int64_t count, std::int64_t sequence)
      : sequence_(sequence),
        nll_(static_cast<std::size_t>(count)),
        targets_(static_cast<std::size_t>(count)) {}

  void add(const LocalRow& row, std::span<const float> nll) {
    if (nll_.empty()) return;
    const auto count = static_cast<std::int64_t>(nll_.size());
    for (std::size_t t = 0; t < row.targets.size(); ++t) {
      if (row.targets[t] < 0) continue;
      const auto b = static_cast<std::size_t>(row.positions[t] * count / sequence_);
      nll_[b] += static_cast<double>(nll[t]);
      ++targets_[b];
    }
  }

  std::vector<PositionLoss> over(Comm& world) {
    if (nll_.empty()) return {};
    world.all_reduce(std::span<double>(nll_));
    world.all_reduce(std::span<std::int64_t>(targets_));
    std::vector<PositionLoss> all;
    const auto count = static_cast<std::int64_t>(nll_.size());
    // The first position of bucket b is the least p with p * count / sequence >= b.
    const auto edge = [&](std::int64_t b) { return (b * sequence_ + count - 1) / count; };
    for (std::int64_t b = 0; b < count; ++b) {
      const auto i = static_cast<std::size_t>(b);
      all.push_back({.from = edge(b),
                     .to = edge(b + 1),
                     .targets = targets_[i],
                     .loss = targets_[i] > 0 ? nll_[i] / static_cast<double>(targets_[i]) : 0.0});
    }
    return all;
  }

 private:
  std::int64_t sequence_;
  std::vector<double> nll_;
  std::vector<std::int64_t> targets_;
};

}  // namespace

EvalResult evaluate(Comm& world, Engine& engine, Dataset& data) {
  const EngineSpec& spec = engine.spec();
  const double begun = steady_seconds();
  const std::vector<std::int64_t> windows = spec.model.distinct_windows();
  Buckets buckets(spec.run.train.eval_positions, spec.run.data.sequence);
  EvalResult result;
  double sums[3] = {};  // nll, hits, entropy
  std::int64_t targets = 0;
  for (std::int64_t first = 0; first < data.rows(); first += spec.grid.data) {
    const std::int64_t mine = first + spec.grid.data_index;
    std::vector<LocalRow> row;
    agreed(world, "reading a row", [&] {
      row.push_back(data.local_row(mine < data.rows() ? mine : -1, spec.grid, spec.per_member, windows));
    });
    const RowTotals totals = engine.eval(row.front());
    sums[0] += totals.nll;
    sums[1] += totals.hits;
    sums[2] += totals.entropy;
    targets += row.front().target_count();
    buckets.add(row.front(), engine.nll());
  }
  world.all_reduce(std::span<double>(sums));
  result.targets = world.sum(targets);
  result.tokens = data.tokens();
  const double n = static_cast<double>(result.targets);
  if (result.targets == 0) input_error("data.eval has no target: every token is masked");
  result.loss = sums[0] / n;
  result.perplexity = std::exp(result.loss);
  result.accuracy = sums[1] / n;
  result.entropy = sums[2] / n;
  result.positions = buckets.over(world);
  result.seconds = steady_seconds() - begun;
  return result;
}

std::string eval_line(const EvalResult& r) {
  char text[200];
  std::snprintf(text, sizeof text,
                "eval loss %.6f  perplexity %.4f  accuracy %.4f  entropy %.4f  over %lld targets", r.loss,
                r.perplexity, r.accuracy, r.entropy, static_cast<long long>(r.targets));
  return text;
}

std::vector<std::string> position_lines(const EvalResult& r) {
  std::vector<std::string> lines;
  for (const PositionLoss& p : r.positions) {
    if (p.targets == 0) continue;
    char text[160];
    if (lines.empty()) lines.emplace_back("  position in document        loss      targets");
    std::snprintf(text, sizeof text, "%10lld to %-10lld %10.6f %12lld", static_cast<long long>(p.from),
                  static_cast<long long>(p.to - 1), p.loss, static_cast<long long>(p.targets));
    lines.emplace_back(text);
  }
  return lines;
}

std::string eval_fields(const EvalResult& r, const Best& best) {
  nlohmann::ordered_json j = {{"eval_loss", r.loss},         {"eval_perplexity", r.perplexity},
                              {"eval_accuracy", r.accuracy}, {"eval_entropy", r.entropy},
                              {"eval_targets", r.targets},   {"eval_seconds", r.seconds}};
  for (const PositionLoss& p : r.positions)
    if (p.targets > 0)
      j["eval_positions"].push_back(
          {{"from", p.from}, {"to", p.to}, {"loss", p.loss}, {"targets", p.targets}});
  if (best.step >= 0) j["best_step"] = best.step;
  return j.dump();
}

}  // namespace annulus
