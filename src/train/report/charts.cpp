#include "train/report/charts.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace annulus {
namespace {

/// A field of metrics.jsonl as it is drawn.
struct Field {
  const char* name;
  const char* title;
  const char* unit;
  double scale;  // of the value, for the unit
  bool from_zero, may_log;
  const char* eval;  // the evaluation's field in the same chart, or ""
};

constexpr Field kFields[] = {
    {"grad_norm", "Gradient norm, before clipping", "", 1, false, true, ""},
    {"lr", "Learning rate", "", 1, true, false, ""},
    {"aux_loss", "Load balancing loss", "", 1, false, false, ""},
    {"expert_load_max", "Most loaded expert against the mean", "", 1, true, false, ""},
    {"accuracy", "Accuracy of the next token", "%", 100, false, false, "accuracy"},
    {"entropy", "Entropy of the predictions, nats", "", 1, false, false, "entropy"},
    {"step_seconds", "Time of a step", " s", 1, true, false, ""},
    {"tokens_per_second", "Tokens per second, all ranks", "", 1, true, false, ""},
    {"mfu", "Model flops utilisation", "%", 100, true, false, ""},
    {"model_tflops", "Model TFLOP/s of a rank", "", 1, true, false, ""},
};

/// Shown elsewhere, or not at all: they only grow.
const std::set<std::string> kElsewhere = {
    "loss", "tokens", "targets", "epoch", "device_peak_bytes", "device_used_bytes", "host_peak_bytes"};

bool has(const History& h, const std::string& field) {
  const auto at = h.curves.find(field);
  return at != h.curves.end() && std::any_of(at->second.mean.begin(), at->second.mean.end(),
                                             [](double v) { return std::isfinite(v) && v != 0; });
}

bool any_has(const std::vector<History>& runs, const std::string& field) {
  return std::any_of(runs.begin(), runs.end(), [&](const History& h) { return has(h, field); });
}

std::vector<double> scaled(std::vector<double> values, double by) {
  for (double& v : values) v *= by;
  return values;
}

bool thinned(const History& h) {
  return h.first != h.step;
}

Series series_of(const History& h, const std::string& field, double scale, int color) {
  const Curve& c = h.curves.at(field);
  Series s{.label = {}, .color = color, .x = h.step, .y = scaled(c.mean, scale), .low = {}, .high = {}};
  if (thinned(h)) {
    s.low = scaled(c.low, scale);
    s.high = scaled(c.high, scale);
  }
  return s;
}

Series evals_of(const History& h, const std::string& field, double scale, int color) {
  Series s{.color = color, .x = {}, .y = {}, .low = {}, .high = {}, .look = Series::Look::dots};
  constexpr std::size_t kDots = 200;
  for (const std::size_t i : spread(h.evals.size(), kDots)) {
    const auto at = h.evals[i].values.find(field);
    if (at == h.evals[i].values.end()) continue;
    s.x.push_back(h.evals[i].step);
    s.y.push_back(at->second * scale);
  }
  return s;
}

/// Mean over a window round each point: what noise hides.
Series smoothed(Series s) {
  const std::size_t n = s.y.size(), half = n / 60;
  std::vector<double> out(n, std::numeric_limits<double>::quiet_NaN());
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t reach = std::min({half, i, n - 1 - i});  // as far on both sides: the ends stay in place
    double sum = 0;
    int count = 0;
    for (std::size_t k = i - reach; k <= i + reach; ++k)
      if (std::isfinite(s.y[k])) {
        sum += s.y[k];
        ++count;
      }
    if (count > 0) out[i] = sum / count;
  }
  s.y = std::move(out);
  s.low.clear();
  s.high.clear();
  s.look = Series::Look::bold;
  return s;
}

/// What is to be said in a chart of one run, or the run's name where there are several.
std::string label(const std::vector<History>& runs, std::size_t run, const std::string& alone,
                  const std::string& of_several = "") {
  return runs.size() == 1 ? alone : runs[run].name + of_several;
}

void mark_life(const std::vector<History>& runs, Chart& chart) {
  if (runs.size() != 1 || runs[0].first_step <= 0) return;
  chart.mark = runs[0].first_step;
  chart.mark_title = "the newest life began after step " + std::to_string(runs[0].first_step);
}

Chart loss_chart(const std::vector<History>& runs) {
  constexpr std::size_t kNoisy = 60;  // points from which on a mean is drawn over them
  Chart chart{.title = "Loss", .wide = true};
  for (std::size_t r = 0; r < runs.size(); ++r) {
    if (!has(runs[r], "loss")) continue;
    const int color = static_cast<int>(r), eval_color = runs.size() == 1 ? 1 : color;
    Series s = series_of(runs[r], "loss", 1, color);
    s.label = label(runs, r, "training");
    const bool noisy = s.y.size() >= kNoisy;
    if (noisy) {
      Series mean = smoothed(s);
      mean.hover = false;
      s.look = Series::Look::faint;
      chart.series.push_back(s);
      chart.series.push_back(mean);
      chart.note = thinned(runs[r]) ? "bold: running mean; band: least and greatest" : "bold: running mean";
    } else {
      chart.series.push_back(s);
    }
    Series evals = evals_of(runs[r], "loss", 1, eval_color);
    evals.label = label(runs, r, "evaluation", ", evaluation");
    if (!evals.x.empty()) chart.series.push_back(evals);
  }
  mark_life(runs, chart);
  return chart;
}

/// The newest evaluation by position, and for one run its first beside it.
Chart position_chart(const std::vector<History>& runs) {
  Chart chart{.title = "Evaluation loss by position in the document",
              .note = "it must not climb with the position",
              .x_title = "position"};
  const auto add = [&](const EvalPoint& e, const std::string& name, int color, Series::Look look) {
    Series s{.label = name, .color = color, .x = {}, .y = {}, .low = {}, .high = {}, .look = look};
    for (const PositionLoss& p : e.positions) {
      s.x.push_back((p.from + p.to - 1) / 2);
      s.y.push_back(p.loss);
    }
    chart.series.push_back(s);
  };
  for (std::size_t r = 0; r < runs.size(); ++r) {
    std::vector<const EvalPoint*> with;
    for (const EvalPoint& e : runs[r].evals)
      if (!e.positions.empty()) with.push_back(&e);
    if (with.empty()) continue;
    const int color = static_cast<int>(r);
    if (runs.size() == 1 && with.size() > 1)
      add(*with.front(), "step " + std::to_string(with.front()->step), 7, Series::Look::line);
    const std::string name = "step " + std::to_string(with.back()->step);
    add(*with.back(), label(runs, r, name, ", " + name), color, Series::Look::bold);
  }
  return chart;
}

Chart field_chart(const std::vector<History>& runs, const Field& f) {
  Chart chart{.title = f.title, .unit = f.unit, .from_zero = f.from_zero, .may_log = f.may_log};
  for (std::size_t r = 0; r < runs.size(); ++r) {
    if (!has(runs[r], f.name)) continue;
    const int color = static_cast<int>(r);
    Series s = series_of(runs[r], f.name, f.scale, color);
    s.label = label(runs, r, *f.eval != 0 ? "training" : "");
    chart.series.push_back(s);
    if (thinned(runs[r])) chart.note = "band: least and greatest";
    if (*f.eval == 0) continue;
    Series evals = evals_of(runs[r], f.eval, f.scale, runs.size() == 1 ? 1 : color);
    evals.label = label(runs, r, "evaluation", ", evaluation");
    if (!evals.x.empty()) chart.series.push_back(evals);
  }
  mark_life(runs, chart);
  return chart;
}

Chart memory_chart(const std::vector<History>& runs) {
  struct Part {
    const char *field, *name;
  };
  constexpr Part kParts[] = {{"device_used_bytes", "device, whole process"},
                             {"device_peak_bytes", "tensors, highest"},
                             {"host_peak_bytes", "host, highest"}};
  Chart chart{.title = "Memory of a rank, the largest", .unit = " GB", .from_zero = true};
  const bool device = any_has(runs, "device_used_bytes");
  for (std::size_t r = 0; r < runs.size(); ++r) {
    int color = static_cast<int>(r);
    for (const Part& part : kParts) {
      // Beside one another runs show one figure each: that of the device, or of the host where there is none.
      const bool the_one = std::string(part.field) == (device ? "device_used_bytes" : "host_peak_bytes");
      if ((runs.size() > 1 && !the_one) || !has(runs[r], part.field)) continue;
      Series s = series_of(runs[r], part.field, 1e-9, runs.size() > 1 ? color : color++);
      s.label = label(runs, r, part.name);
      chart.series.push_back(s);
    }
  }
  mark_life(runs, chart);
  return chart;
}

}  // namespace

std::vector<Chart> charts_of(const std::vector<History>& runs) {
  std::vector<Chart> charts;
  const auto add = [&](Chart chart) {
    if (!chart.series.empty()) charts.push_back(std::move(chart));
  };
  add(loss_chart(runs));
  add(position_chart(runs));
  std::set<std::string> done = kElsewhere;
  for (const Field& f : kFields) {
    done.insert(f.name);
    // The same curve in other units, where there is a peak to compare with.
    if (std::string(f.name) == "model_tflops" && any_has(runs, "mfu")) continue;
    add(field_chart(runs, f));
    if (std::string(f.name) == "tokens_per_second") add(memory_chart(runs));
  }
  for (const History& h : runs)
    for (const auto& [name, curve] : h.curves)
      if (done.insert(name).second)
        add(field_chart(runs, {name.c_str(), name.c_str(), "", 1, false, false, ""}));
  return charts;
}

}  // namespace annulus
