#include "app/plan_text.h"
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace annulus {
namespace {

constexpr double kGiga = 1e9, kTera = 1e12, kMilli = 1e-3;

std::string line(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return std::string(text) + "\n";
}

double gb(std::int64_t bytes) {
  return static_cast<double>(bytes) / kGiga;
}

/// 1234567 as 1,234,567.
std::string grouped(std::int64_t n) {
  std::string text = std::to_string(n);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

const char* lane_name(Lane lane) {
  constexpr const char* names[kLanes] = {"compute",           "ring of keys and values", "gathering weights",
                                         "summing gradients", "dispatch to experts",     "copies to the host",
                                         "copies back"};
  return names[static_cast<int>(lane)];
}

const char* collective_name(int c) {
  constexpr const char* names[kCollectives] = {"all-reduce", "all-gather", "reduce-scatter", "exchange"};
  return names[c];
}

std::int64_t parameters(const ModelConfig& model) {
  std::int64_t sum = 0;
  for (const Unit& unit : make_units(model))
    for (const Parameter& p : unit.parameters) sum += p.size();
  return sum;
}

/// What libraries and the context take besides the arena.
double overhead_gb(const PlanDevice& d) {
  if (d.rates == nullptr || d.place == Place::host) return 0;
  return d.rates->number("start_gb") + d.rates->number("later_gb");
}

double mfu(const Plan& p, const PlanDevice& d) {
  return p.forecast.flops / p.forecast.seconds() / p.spec.grid.world /
         (d.rates->number("peak_tflops") * kTera);
}

std::string heading(const Plan& p, const PlanDevice& d, const std::string& rates_path) {
  const Grid& g = p.spec.grid;
  std::string text =
      line("%s, %.2f billion parameters; rank %d of %d (data %d x ring %d x ulysses %d) on %d node(s)",
           p.spec.model.model_type.c_str(), static_cast<double>(parameters(p.spec.model)) / kGiga, g.rank,
           g.world, g.data, g.ring, g.ulysses, (g.world + p.node.local_size - 1) / p.node.local_size);
  text += line("%s tokens a row, %s a step in %s micro-step(s) of each rank",
               grouped(p.spec.run.data.sequence).c_str(), grouped(p.forecast.tokens).c_str(),
               grouped(p.forecast.micro_steps).c_str());
  if (d.rates != nullptr)
    text += line("%s by %s; links %.0f GB/s in a node, %.0f GB/s between nodes", d.rates->device().c_str(),
                 rates_path.c_str(), p.links.near / kGiga, p.links.far / kGiga);
  return text;
}

std::string memory_table(const Plan& p, const PlanDevice& d) {
  const Layout& m = p.forecast.layout;
  std::string text = "\nmemory of a rank at its peak        GB\n";
  for (int r = 0; r < kRegions; ++r)
    text += line("  %-28s %9.3f", name_of(static_cast<Region>(r)), gb(m.region_bytes[r]));
  text += line("  %-28s %9.3f   (persistent %.3f, pool of temporaries %.3f, of which live at once %.3f)",
               "in all, packed", gb(m.total_bytes()), gb(m.kept_bytes()), gb(m.pool_bytes), gb(m.live_bytes));
  if (d.place == Place::host) return text;
  if (d.rates != nullptr)
    text += line("  %-28s %9.3f   of %.1f", "device, with libraries", gb(m.total_bytes()) + overhead_gb(d),
                 d.rates->number("device_gb"));
  text += line("  %-28s %9.3f   (%.1f a node; saved tensors of %lld of %lld layers)", "pinned host memory",
               gb(p.forecast.pinned_bytes), gb(p.forecast.pinned_bytes) * p.node.local_size,
               static_cast<long long>(p.spec.options.offload_layers), static_cast<long long>(p.spec.model.L));
  return text;
}

std::string work_table(const Plan& p, bool timed) {
  const auto kinds = p.forecast.kinds();
  std::vector<std::pair<std::string, Spent>> sorted(kinds.begin(), kinds.end());
  std::sort(sorted.begin(), sorted.end(), [timed](const auto& a, const auto& b) {
    return timed ? a.second.seconds > b.second.seconds
                 : a.second.flops + a.second.bytes > b.second.flops + b.second.bytes;
  });
  std::string text = "\nwork of a rank, a step          calls      TFLOP         GB";
  text += timed ? "          ms\n" : "\n";
  for (const auto& [kind, s] : sorted) {
    std::string row = line("  %-22s %12s %10.1f %10.2f", kind.c_str(), grouped(s.calls).c_str(),
                           s.flops / kTera, s.bytes / kGiga);
    if (timed) row = row.substr(0, row.size() - 1) + line(" %11.2f", s.seconds / kMilli);
    text += row;
  }
  return text;
}

std::string traffic_table(const Plan& p) {
  const Traffic& t = p.forecast.traffic;
  if (t.total() == 0) return {};
  std::string text = "\nsent by a rank, a step          calls         GB\n";
  for (int l = 0; l < kLanes; ++l)
    for (int c = 0; c < kCollectives; ++c)
      if (t.bytes[c][l] > 0)
        text += line("  %-22s %12s %10.2f   %s", collective_name(c), grouped(t.calls[c][l]).c_str(),
                     gb(t.bytes[c][l]), lane_name(static_cast<Lane>(l)));
  return text;
}

std::string lane_table(const Plan& p) {
  const Forecast& f = p.forecast;
  std::string text = "\nlane                         busy s     exposed s\n";
  text += line("  %-22s %10.3f", lane_name(Lane::compute), f.busy(Lane::compute));
  for (int l = 1; l < kLanes; ++l) {
    const Lane lane = static_cast<Lane>(l);
    if (f.busy(lane) > 0)
      text += line("  %-22s %10.3f    %10.3f", lane_name(lane), f.busy(lane), f.waited_for(lane));
  }
  if (f.waited_for(Lane::compute) > 0)
    text += line("  %-22s %10s    %10.3f", "calls from the host", "", f.waited_for(Lane::compute));
  return text;
}

}  // namespace

std::string plan_text(const Plan& p, const PlanDevice& d, const std::string& rates_path) {
  const bool timed = d.rates != nullptr;
  std::string text = heading(p, d, rates_path) + memory_table(p, d) + work_table(p, timed) + traffic_table(p);
  if (timed) {
    const double t = p.forecast.seconds(), tokens = static_cast<double>(p.forecast.tokens);
    text += lane_table(p);
    text +=
        line("\nstep %.3f s, %.0f tokens/s, %.0f tokens/s a rank, %.1f model TFLOP/s a rank", t, tokens / t,
             tokens / t / p.spec.grid.world, p.forecast.flops / t / p.spec.grid.world / kTera);
    if (d.rates->number("peak_tflops") > 0) {
      text.pop_back();
      text += line(", MFU %.1f %%", 100 * mfu(p, d));
    }
    if (!d.rates->unknown().empty()) {
      text += "not in the rates file, taken at the rate of a copy or a matmul:";
      for (const std::string& name : d.rates->unknown()) text += " " + name;
      text += "\n";
    }
  }
  text.pop_back();
  return text;
}

std::string plan_json(const Plan& p, const PlanDevice& d) {
  using nlohmann::ordered_json;
  const Forecast& f = p.forecast;
  ordered_json j;
  j["fits"] = p.fits;
  j["ranks"] = p.spec.grid.world;
  j["sequence"] = p.spec.run.data.sequence;
  j["tokens"] = f.tokens;
  for (int r = 0; r < kRegions; ++r)
    j["region_bytes"][name_of(static_cast<Region>(r))] = f.layout.region_bytes[r];
  j["arena_bytes"] = f.layout.total_bytes();
  j["device_bytes"] = f.layout.total_bytes() + static_cast<std::int64_t>(overhead_gb(d) * kGiga);
  j["pinned_bytes"] = f.pinned_bytes;
  j["offload_layers"] = p.spec.options.offload_layers;
  j["model_flops"] = f.flops;
  for (const auto& [kind, s] : f.kinds())
    j["work"][kind] = {{"calls", s.calls}, {"flops", s.flops}, {"bytes", s.bytes}, {"seconds", s.seconds}};
  for (int c = 0; c < kCollectives; ++c)
    for (int l = 0; l < kLanes; ++l)
      if (f.traffic.bytes[c][l] > 0)
        j["sent_bytes"][collective_name(c)][lane_name(static_cast<Lane>(l))] = f.traffic.bytes[c][l];
  if (d.rates != nullptr) {
    j["device"] = d.rates->device();
    j["step_seconds"] = f.seconds();
    j["tokens_per_second"] = static_cast<double>(f.tokens) / f.seconds();
    if (d.rates->number("peak_tflops") > 0) j["mfu"] = mfu(p, d);
    for (int l = 0; l < kLanes; ++l)
      j["exposed_seconds"][l == 0 ? "calls from the host" : lane_name(static_cast<Lane>(l))] =
          f.waited_for(static_cast<Lane>(l));
  }
  return j.dump();
}

std::string shortage(const Plan& p, const std::vector<std::string>& levers) {
  constexpr std::int64_t kEndless = std::int64_t{1} << 60;
  const std::int64_t needs = p.forecast.layout.total_bytes();
  char text[512];
  std::snprintf(
      text, sizeof text,
      "the job does not fit: a rank needs %.2f GB and may take %.2f GB, %.2f GB too much, with the saved "
      "tensors of %lld of %lld layers in host memory",
      gb(needs), gb(p.budget.device), gb(needs - p.budget.device),
      static_cast<long long>(p.spec.options.offload_layers), static_cast<long long>(p.spec.model.L));
  std::string sentence = text;
  if (p.budget.host > 0 && p.budget.host < kEndless) {
    std::snprintf(text, sizeof text, " (%.2f GB of %.2f a rank)", gb(p.forecast.pinned_bytes),
                  gb(p.budget.host));
    sentence += text;
  }
  sentence += "; ";
  if (levers.empty())
    return sentence + "no lever makes it fit: take a shorter data.sequence or a smaller model";
  for (std::size_t i = 0; i < levers.size(); ++i)
    sentence += (i == 0 ? "" : i + 1 == levers.size() ? " and " : ", ") + levers[i];
  return sentence + " would make it fit";
}

}  // namespace annulus
