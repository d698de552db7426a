#include "train/report/page.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include "train/facts.h"
#include "train/report/charts.h"

namespace annulus {
namespace {

double last_of(const History& h, const char* field) {
  const auto at = h.last.find(field);
  return at != h.last.end() ? at->second : std::nan("");
}

std::string fixed(double v, int digits) {
  if (!std::isfinite(v)) return "–";
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, v);
  return text;
}

std::string clock(double seconds) {
  const auto s = static_cast<long long>(seconds);
  char text[48];
  if (s >= 172800)
    std::snprintf(text, sizeof text, "%lld d %lld h", s / 86400, s / 3600 % 24);
  else if (s >= 3600)
    std::snprintf(text, sizeof text, "%lld h %02lld m", s / 3600, s / 60 % 60);
  else if (s >= 60)
    std::snprintf(text, sizeof text, "%lld m %02lld s", s / 60, s % 60);
  else
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

struct State {
  std::string word;
  const char* look;  // class of the badge
};

State state_of(const History& h) {
  if (h.reason == "done") return {"done", "good"};
  if (h.reason == "running" && h.alive) return {"running", "live"};
  if (h.reason == "running") return {"ended without a word", "bad"};
  if (h.reason.rfind("error", 0) == 0) return {"ended with an error", "bad"};
  if (h.reason.empty()) return {"no status", ""};
  return {"stopped: " + h.reason, ""};
}

std::string badge(const History& h) {
  const State s = state_of(h);
  return "<span class=\"state " + std::string(s.look) + "\">" + escaped(s.word) + "</span>";
}

std::int64_t steps_of(const History& h) {
  return h.step.empty() ? 0 : h.step.back();
}

const EvalPoint* best_of(const History& h) {
  const EvalPoint* best = nullptr;
  const auto loss = [](const EvalPoint& e) {
    const auto at = e.values.find("loss");
    return at != e.values.end() && std::isfinite(at->second) ? at->second : INFINITY;
  };
  for (const EvalPoint& e : h.evals)
    if (std::isfinite(loss(e)) && (best == nullptr || loss(e) < loss(*best))) best = &e;
  return best;
}

double memory_of(const History& h, bool* device) {
  const double used = last_of(h, "device_used_bytes");
  *device = std::isfinite(used) && used > 0;
  return (*device ? used : last_of(h, "host_peak_bytes")) * 1e-9;
}

std::string tile(const std::string& title, const std::string& value, const std::string& small = "") {
  return "<div><dt>" + title + "</dt><dd>" + value + (small.empty() ? "" : "<small>" + small + "</small>") +
         "</dd></div>";
}

std::string tiles(const History& h) {
  std::string t = "<dl class=tiles>";
  const std::int64_t step = steps_of(h);
  t += tile("Step", std::to_string(step), h.total > 0 ? "of " + std::to_string(h.total) : "");
  t += tile("Training loss", fixed(last_of(h, "loss"), 4), "epoch " + fixed(last_of(h, "epoch"), 2));
  if (const EvalPoint* best = best_of(h))
    t += tile("Best evaluation", fixed(best->values.at("loss"), 4),
              "step " + std::to_string(best->step) + (h.best_step == best->step ? ", in best.h5" : ""));
  t += tile("Tokens seen", short_number(last_of(h, "tokens")),
            short_number(last_of(h, "tokens_per_second")) + " a second");
  t += tile("Time of a step", fixed(h.step_time, h.step_time < 10 ? 3 : 1) + " s", "median of the last");
  if (std::isfinite(last_of(h, "mfu"))) t += tile("MFU", fixed(100 * last_of(h, "mfu"), 1) + "%");
  bool device = false;
  const double memory = memory_of(h, &device);
  t += tile("Memory of a rank", fixed(memory, memory < 1 ? 3 : 1) + " GB", device ? "device" : "host");
  const double left = static_cast<double>(h.total - step) * h.step_time;
  t += tile("Time in steps", clock(h.seconds),
            h.total > step && step > 0 && h.reason != "done" ? "about " + clock(left) + " to go" : "");
  return t + "</dl>\n";
}

std::string table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows) {
  std::string t = "<div class=scroll><table><thead><tr>";
  for (const std::string& h : head) t += "<th scope=col>" + h + "</th>";
  t += "</tr></thead><tbody>";
  for (const auto& row : rows) {
    t += "<tr>";
    for (const std::string& cell : row) t += "<td>" + cell + "</td>";
    t += "</tr>\n";
  }
  return t + "</tbody></table></div>";
}

std::string comparison(const std::vector<History>& runs) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const History& h = runs[r];
    const EvalPoint* best = best_of(h);
    bool device = false;
    const double memory = memory_of(h, &device);
    rows.push_back(
        {"<span class=\"key c" + std::to_string(r) + "\">" + escaped(h.name) + "</span>", badge(h),
         std::to_string(steps_of(h)) + (h.total > 0 ? " of " + std::to_string(h.total) : ""),
         fixed(last_of(h, "loss"), 4),
         best != nullptr ? fixed(best->values.at("loss"), 4) + " at " + std::to_string(best->step) : "–",
         short_number(last_of(h, "tokens")), fixed(h.step_time, 3) + " s",
         short_number(last_of(h, "tokens_per_second")), fixed(100 * last_of(h, "mfu"), 1),
         fixed(memory, 2) + (device ? " GB" : " GB host")});
  }
  return "<div class=card>" +
         table({"run", "", "step", "loss", "best evaluation", "tokens", "step time", "tokens/s", "MFU %",
                "memory of a rank"},
               rows) +
         "</div>\n";
}

std::string details(const std::string& summary, const std::string& inside) {
  return "<details class=card><summary>" + summary + "</summary>" + inside + "</details>\n";
}

std::string evaluations(const History& h) {
  constexpr std::size_t kMost = 100;
  if (h.evals.empty()) return "";
  std::vector<std::vector<std::string>> rows;
  for (const std::size_t i : spread(h.evals.size(), kMost)) {
    const EvalPoint& e = h.evals[i];
    const auto value = [&](const char* name) {
      const auto at = e.values.find(name);
      return at != e.values.end() ? at->second : std::nan("");
    };
    rows.push_back({std::to_string(e.step), fixed(value("loss"), 6), short_number(value("perplexity"), 6),
                    fixed(100 * value("accuracy"), 2), fixed(value("entropy"), 4),
                    fixed(value("targets"), 0)});
  }
  return details("Evaluations",
                 table({"step", "loss", "perplexity", "accuracy %", "entropy", "targets"}, rows));
}

std::string values(const History& h) {
  constexpr std::size_t kMost = 40;
  const char* const fields[] = {"loss",         "grad_norm",         "lr",  "accuracy", "entropy",
                                "step_seconds", "tokens_per_second", "mfu", "aux_loss", "expert_load_max"};
  std::vector<std::string> head = {"step"};
  for (const char* f : fields)
    if (h.curves.count(f) > 0) head.push_back(f);
  std::vector<std::vector<std::string>> rows;
  for (const std::size_t i : spread(h.step.size(), kMost)) {
    std::vector<std::string> row = {h.first[i] == h.step[i]
                                        ? std::to_string(h.step[i])
                                        : std::to_string(h.first[i]) + " to " + std::to_string(h.step[i])};
    for (const char* f : fields)
      if (const auto c = h.curves.find(f); c != h.curves.end())
        row.push_back(short_number(c->second.mean[i], 5));
    rows.push_back(std::move(row));
  }
  return details("Values", table(head, rows));
}

std::string alarm(const History& h) {
  const bool error = h.reason.rfind("error", 0) == 0;
  return error ? "<p class=alarm>" + escaped(h.name) + ": " + escaped(h.reason) + "</p>\n" : "";
}

std::string header(const std::vector<History>& runs) {
  if (runs.size() > 1) return "<header><h1>" + std::to_string(runs.size()) + " runs</h1></header>\n";
  const History& h = runs[0];
  std::string t =
      "<header><h1>" + escaped(h.name) + "</h1>" + badge(h) + "<p>" + escaped(h.folder) + "</p></header>\n";
  if (h.total > 0) {
    const double share =
        std::clamp(100.0 * static_cast<double>(steps_of(h)) / static_cast<double>(h.total), 0.0, 100.0);
    t += "<div class=bar role=img aria-label=\"" + fixed(share, 0) +
         "% of the steps\"><i style=\"width:" + fixed(share, 1) + "%\"></i></div>\n";
  }
  return t;
}

}  // namespace

std::size_t report_points(std::size_t runs) {
  constexpr std::size_t kPoints = 1600, kAlone = 800;
  return std::min(kAlone, kPoints / std::max<std::size_t>(1, runs));
}

std::string report_page(const std::vector<History>& runs, const std::string& written) {
  std::string page =
      "<!DOCTYPE html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n<meta name=viewport "
      "content=\"width=device-width,initial-scale=1\">\n<meta http-equiv=Content-Security-Policy "
      "content=\"default-src 'none';style-src 'unsafe-inline';script-src 'unsafe-inline'\">\n<title>" +
      (runs.size() == 1 ? escaped(runs[0].name) : std::to_string(runs.size()) + " runs") +
      " - annulus</title>\n<style>" + kReportStyle + "</style>\n</head>\n<body>\n<main>\n" + header(runs);
  for (const History& h : runs) page += alarm(h);
  page += runs.size() == 1 ? tiles(runs[0]) : comparison(runs);
  const std::vector<Chart> charts = charts_of(runs);
  if (charts.empty()) page += "<p>No step is done yet.</p>\n";
  page += "<div class=charts>\n";
  std::string json;
  for (std::size_t i = 0; i < charts.size(); ++i) {
    page += chart_html(charts[i], i);
    json += (i > 0 ? ",\n" : "") + chart_json(charts[i]);
  }
  page += "</div>\n";
  std::int64_t unreadable = 0;
  for (const History& h : runs) {
    page +=
        "<h2>" + (runs.size() == 1 ? "Details" : escaped(h.name)) + "</h2>\n" + evaluations(h) + values(h);
    if (!h.config.empty()) page += details("Configuration", "<pre>" + escaped(h.config) + "</pre>");
    if (!h.facts.empty()) page += details("Machine and libraries", "<pre>" + escaped(h.facts) + "</pre>");
    unreadable += h.unreadable;
  }
  page += "<footer>Written " + escaped(written) + " by " + escaped(program_version()) + ".";
  if (unreadable > 0)
    page +=
        " Lines of metrics.jsonl that are no steps and were left out: " + std::to_string(unreadable) + ".";
  return page + "</footer>\n</main>\n<script type=\"application/json\" id=data>[" + json +
         "]</script>\n<script>" + kReportScript + "</script>\n</body>\n</html>\n";
}

}  // namespace annulus
