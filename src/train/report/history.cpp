#include "train/report/history.h"
#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

namespace annulus {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kTextBytes = 64 * 1024, kFields = 64;
constexpr std::int64_t kMost = std::int64_t{1} << 53;

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(kTextBytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, in.gcount())));
  return text;
}

Json object_in(const std::string& path) {
  Json j = Json::parse(text_of(path), nullptr, false);
  return j.is_object() ? j : Json::object();
}

std::int64_t whole(const Json& j, const char* key, std::int64_t missing) {
  const auto at = j.find(key);
  return at != j.end() && at->is_number_integer() ? std::clamp(at->get<std::int64_t>(), -kMost, kMost)
                                                  : missing;
}

/// All steps, one value a field; fields that come later have nothing before.
struct Columns {
  std::vector<std::int64_t> step;
  std::map<std::string, std::vector<double>> fields;

  void drop_from(std::int64_t again) {
    while (!step.empty() && step.back() >= again) step.pop_back();
    for (auto& [name, values] : fields) values.resize(std::min(values.size(), step.size()));
  }
  void add(std::int64_t at, const Json& line) {
    drop_from(at);
    for (const auto& [name, value] : line.items()) {
      if (!value.is_number() || name == "step" || name == "best_step" || name.rfind("eval_", 0) == 0)
        continue;
      if (fields.count(name) == 0 && fields.size() >= kFields) continue;
      std::vector<double>& column = fields[name];
      column.resize(step.size(), kNone);
      column.push_back(value.get<double>());
    }
    step.push_back(at);
    for (auto& [name, values] : fields) values.resize(step.size(), kNone);
  }
};

EvalPoint eval_point(std::int64_t step, const Json& line) {
  EvalPoint point{.step = step, .values = {}, .positions = {}};
  for (const auto& [name, value] : line.items())
    if (name.rfind("eval_", 0) == 0 && value.is_number()) point.values[name.substr(5)] = value.get<double>();
  const auto buckets = line.find("eval_positions");
  if (buckets == line.end() || !buckets->is_array()) return point;
  for (const Json& b : *buckets) {
    if (!b.is_object() || !b.contains("loss") || !b["loss"].is_number()) continue;
    point.positions.push_back({.from = whole(b, "from", 0),
                               .to = whole(b, "to", 0),
                               .targets = whole(b, "targets", 0),
                               .loss = b["loss"].get<double>()});
  }
  return point;
}

Curve thinned(const std::vector<double>& values, std::size_t points) {
  const std::size_t n = values.size(), count = std::min(n, points);
  Curve c;
  for (std::size_t p = 0; p < count; ++p) {
    double sum = 0, low = kNone, high = kNone;
    std::int64_t finite = 0;
    for (std::size_t i = p * n / count; i < (p + 1) * n / count; ++i) {
      if (!std::isfinite(values[i])) continue;
      sum += values[i];
      ++finite;
      low = std::fmin(low, values[i]);
      high = std::fmax(high, values[i]);
    }
    c.mean.push_back(finite > 0 ? sum / static_cast<double>(finite) : kNone);
    c.low.push_back(low);
    c.high.push_back(high);
  }
  return c;
}

void read_lines(const std::string& path, Columns& columns, History& h) {
  std::ifstream in(path, std::ios::binary);
  if (!in)
    input_error("cannot read " + path + "; give the folder of a run (run.dir) that has begun its first step");
  for (std::string line; std::getline(in, line);) {
    if (in.eof()) break;  // without its end: it is being written
    if (line.empty()) continue;
    const Json j = Json::parse(line, nullptr, false);
    const std::int64_t step = j.is_object() ? whole(j, "step", -1) : -1;
    if (step < 0) {
      ++h.unreadable;
      continue;
    }
    ++h.lines;
    while (!h.evals.empty() && h.evals.back().step >= step) h.evals.pop_back();
    columns.add(step, j);
    if (EvalPoint point = eval_point(step, j); !point.values.empty()) h.evals.push_back(std::move(point));
  }
}

void read_status(const std::string& folder, History& h) {
  constexpr std::int64_t kStaleSeconds = 120;
  const Json status = object_in(folder + "/status.json");
  if (const auto at = status.find("reason"); at != status.end() && at->is_string())
    h.reason = at->get<std::string>();
  h.first_step = whole(status, "first_step", 0);
  h.total = whole(status, "total_steps", 0);
  h.best_step = whole(status, "best_step", -1);
  const Json lock = object_in(folder + "/lock");
  h.alive = std::time(nullptr) - whole(lock, "heartbeat", 0) <= kStaleSeconds;
}

double median_of_last(const std::vector<double>& values, std::size_t count) {
  std::vector<double> last;
  for (auto v = values.rbegin(); v != values.rend() && last.size() < count; ++v)
    if (std::isfinite(*v)) last.push_back(*v);
  if (last.empty()) return 0;
  std::nth_element(last.begin(), last.begin() + static_cast<std::ptrdiff_t>(last.size() / 2), last.end());
  return last[last.size() / 2];
}

}  // namespace

std::vector<std::size_t> spread(std::size_t n, std::size_t most) {
  std::vector<std::size_t> at;
  const std::size_t count = std::min(n, most);
  for (std::size_t i = 1; i <= count; ++i) at.push_back(i * n / count - 1);
  return at;
}

History read_history(const std::string& folder, std::size_t points) {
  constexpr std::size_t kLast = 15;
  History h;
  h.folder = folder;
  std::error_code none;
  const fs::path whole_path = fs::weakly_canonical(folder, none);
  h.name = whole_path.filename().empty() ? folder : whole_path.filename().string();
  Columns columns;
  read_lines(folder + "/metrics.jsonl", columns, h);
  const std::size_t n = columns.step.size(), count = std::min(n, points);
  for (std::size_t p = 0; p < count; ++p) {
    h.first.push_back(columns.step[p * n / count]);
    h.step.push_back(columns.step[(p + 1) * n / count - 1]);
  }
  for (const auto& [name, values] : columns.fields) {
    h.curves[name] = thinned(values, points);
    if (n > 0 && std::isfinite(values.back())) h.last[name] = values.back();
  }
  if (const auto seconds = columns.fields.find("step_seconds"); seconds != columns.fields.end()) {
    for (const double s : seconds->second) h.seconds += std::isfinite(s) ? s : 0;
    h.step_time = median_of_last(seconds->second, kLast);
  }
  read_status(folder, h);
  h.config = text_of(folder + "/config.ini");
  h.facts = text_of(folder + "/facts.txt");
  return h;
}

}  // namespace annulus
