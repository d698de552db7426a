// A rehearsal's report, for a person and for a program.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include "train/rehearsal.h"

namespace annulus {
namespace {

std::string line(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

double gb(std::int64_t bytes) {
  return static_cast<double>(bytes) * 1e-9;
}

using Kinds = std::vector<std::pair<std::string, OpTime>>;

/// The longest first.
Kinds sorted(const std::map<std::string, OpTime>& times) {
  Kinds kinds(times.begin(), times.end());
  std::sort(kinds.begin(), kinds.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  return kinds;
}

std::string rank_row(const char* name, const RankFigures& r) {
  return line("\n  %4s %9.3f %9.3f %9.2f %9.2f %9.2f", name, r.seconds, r.waited, gb(r.peak_bytes),
              gb(r.device_used_bytes), gb(r.pinned_bytes));
}

std::string rank_table(const std::vector<RankFigures>& ranks) {
  std::string text = "\n  rank    s/step  waited s  arena GB device GB pinned GB";
  RankFigures most, mean;
  const auto n = static_cast<std::int64_t>(ranks.size());
  for (const RankFigures& r : ranks) {
    text += rank_row(std::to_string(r.rank).c_str(), r);
    most.seconds = std::max(most.seconds, r.seconds);
    most.waited = std::max(most.waited, r.waited);
    most.peak_bytes = std::max(most.peak_bytes, r.peak_bytes);
    most.device_used_bytes = std::max(most.device_used_bytes, r.device_used_bytes);
    most.pinned_bytes = std::max(most.pinned_bytes, r.pinned_bytes);
    mean.seconds += r.seconds / static_cast<double>(n);
    mean.waited += r.waited / static_cast<double>(n);
    mean.peak_bytes += r.peak_bytes / n;
    mean.device_used_bytes += r.device_used_bytes / n;
    mean.pinned_bytes += r.pinned_bytes / n;
  }
  return text + rank_row("max", most) + rank_row("mean", mean);
}

std::string operation_table(const RehearsalReport& r) {
  double known = 0;
  std::string text = "\nwhere the time goes:";
  for (const auto& [kind, time] : sorted(r.profile.operations)) {
    known += time.seconds;
    text += line("\n  %-24s %9.2f ms %5.1f %%  %6lld calls", kind.c_str(), time.seconds * 1e3,
                 100 * time.seconds / r.profiled_seconds, static_cast<long long>(time.calls));
  }
  return text + line("\n  %-24s %9.2f ms %5.1f %%", "between operations", (r.profiled_seconds - known) * 1e3,
                     100 * (1 - known / r.profiled_seconds));
}

std::string transfer_table(const Profile& profile) {
  std::string text;
  for (const auto& [kind, time] : sorted(profile.transfers))
    if (time.bytes > 0)
      text += line("\n  %-24s %9.2f ms %9.3f GB %8.2f GB/s  %6lld calls", kind.c_str(), time.seconds * 1e3,
                   gb(time.bytes), gb(time.bytes) / std::max(time.seconds, 1e-9),
                   static_cast<long long>(time.calls));
  return text.empty() ? text : "\nsent, beside that, each on its lane (waiting for peers included):" + text;
}

}  // namespace

std::string describe(const RehearsalReport& r, const EngineSpec& spec, double peak_flops) {
  const double t = r.median(), tokens = static_cast<double>(spec.run.data.sequence) * spec.grid.data;
  const double sharers = spec.grid.context();
  std::string text =
      line("%.3f s/step, %.0f tokens/s, %.0f tokens/s per rank", t, tokens / t, tokens / t / spec.grid.world);
  text += line(", %.1f model TFLOP/s per rank", r.flops / t / sharers * 1e-12);
  if (peak_flops > 0) text += line(", MFU %.1f %%", 100 * r.flops / t / sharers / peak_flops);
  text += line("\nmemory: arena %.2f GB (planned %.2f), device in all %.2f GB, pinned host %.2f GB",
               gb(r.peak_bytes), gb(r.planned_bytes), gb(r.device_used_bytes), gb(r.pinned_bytes));
  text += line("\nloss %.4f", r.loss);
  // Pretended sums have no norm.
  if (!r.pretended || spec.grid.world == 1) text += line(", gradient norm %.4g", r.grad_norm);
  text += "; steps:";
  for (const double s : r.seconds) text += line(" %.3f", s);
  if (r.ranks.size() > 1) text += rank_table(r.ranks);
  if (r.check) text.append("\n").append(describe(*r.check));
  if (!r.profile.operations.empty()) text += operation_table(r) + transfer_table(r.profile);
  return text;
}

std::string rehearsal_json(const RehearsalReport& r, const EngineSpec& spec, double peak_flops) {
  using nlohmann::ordered_json;
  const double t = r.median();
  const std::int64_t tokens = spec.run.data.sequence * spec.grid.data;
  ordered_json j;
  j["ranks"] = spec.grid.world;
  j["pretended"] = r.pretended;
  j["layers"] = spec.model.L;
  j["sequence"] = spec.run.data.sequence;
  j["tokens"] = tokens;
  j["arena_bytes"] = r.peak_bytes;
  j["planned_bytes"] = r.planned_bytes;
  j["device_bytes"] = r.device_used_bytes;
  j["pinned_bytes"] = r.pinned_bytes;
  j["offload_layers"] = spec.options.offload_layers;
  j["model_flops"] = r.flops;
  j["step_seconds"] = t;
  j["steps"] = r.seconds;
  j["tokens_per_second"] = static_cast<double>(tokens) / t;
  if (peak_flops > 0) j["mfu"] = r.flops / t / spec.grid.context() / peak_flops;
  j["loss"] = r.loss;
  if (!r.pretended) j["grad_norm"] = r.grad_norm;
  for (const RankFigures& f : r.ranks)
    j["by_rank"].push_back({{"rank", f.rank},
                            {"step_seconds", f.seconds},
                            {"waited_seconds", f.waited},
                            {"arena_bytes", f.peak_bytes},
                            {"device_bytes", f.device_used_bytes},
                            {"pinned_bytes", f.pinned_bytes}});
  for (const auto& [kind, time] : r.profile.operations)
    j["work"][kind] = {{"calls", time.calls}, {"seconds", time.seconds}};
  for (const auto& [kind, time] : r.profile.transfers)
    j["sent"][kind] = {{"calls", time.calls}, {"bytes", time.bytes}, {"seconds", time.seconds}};
  return j.dump();
}

}  // namespace annulus
