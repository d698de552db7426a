#include "train/report/chart.h"
#include <algorithm>
#include <cmath>
#include <cstdio>

namespace annulus {
namespace {

constexpr double kWidth = 2000, kHeight = 1000;  // of the SVG's own coordinates

/// What an axis covers, and where its labels stand.
struct Axis {
  double low = 0, high = 1;
  bool log = false;
  std::vector<double> ticks;
  std::string note = {};  // what lies outside

  double at(double v) const {
    if (log) return (std::log(v) - std::log(low)) / (std::log(high) - std::log(low));
    return (v - low) / (high - low);
  }
};

std::vector<double> even_ticks(double low, double high, int about) {
  const double rough = (high - low) / about, power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double s : {1.0, 2.0, 2.5, 5.0})
    if (s * power >= rough) {
      step = s * power;
      break;
    }
  std::vector<double> ticks;
  for (double n = std::ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; ++n)
    ticks.push_back(n * step);
  return ticks;
}

std::vector<double> log_ticks(double low, double high) {
  const bool few = high / low < 300;
  std::vector<double> ticks;
  for (double p = std::pow(10.0, std::floor(std::log10(low))); p <= high; p *= 10)
    for (const double s : {1.0, 2.0, 5.0})
      if ((s == 1.0 || few) && p * s >= low && p * s <= high) ticks.push_back(p * s);
  // Many decades: every second, third ... of them.
  constexpr std::size_t kLabels = 6;
  const std::size_t every = ticks.size() / kLabels + 1;
  std::vector<double> kept;
  for (std::size_t i = 0; i < ticks.size(); i += every) kept.push_back(ticks[i]);
  return kept;
}

Axis vertical(const Chart& chart) {
  std::vector<double> all;
  for (const Series& s : chart.series)
    for (const std::vector<double>* values : {&s.y, &s.low, &s.high})
      for (const double v : *values)
        if (std::isfinite(v)) all.push_back(v);
  if (all.empty()) all = {0, 1};
  std::sort(all.begin(), all.end());
  Axis a{.low = all.front(), .high = all.back(), .ticks = {}};
  constexpr double kWide = 30, kFar = 3;
  if (chart.may_log && a.low > 0 && a.high / a.low > kWide) {
    a.log = true;
    a.low /= 1.2;
    a.high *= 1.2;
    a.ticks = log_ticks(a.low, a.high);
    return a;
  }
  const double usual = all[all.size() - 1 - all.size() / 50];
  if (usual > 0 && a.high > kFar * usual) {
    a.note = "greatest " + short_number(a.high) + chart.unit + ", above the axis";
    a.high = 1.2 * usual;
  }
  if (chart.from_zero) a.low = std::min(0.0, a.low);
  const double span = a.high > a.low ? a.high - a.low : std::max(1e-12, std::abs(a.high) * 0.1);
  if (!chart.from_zero || a.low < 0) a.low -= 0.06 * span;
  a.high += 0.08 * span;
  a.ticks = even_ticks(a.low, a.high, 5);
  return a;
}

Axis horizontal(const Chart& chart) {
  Axis a{.low = 0, .high = 0, .ticks = {}};
  bool any = false;
  for (const Series& s : chart.series)
    for (const std::int64_t x : s.x) {
      const auto v = static_cast<double>(x);
      a.low = any ? std::min(a.low, v) : v;
      a.high = any ? std::max(a.high, v) : v;
      any = true;
    }
  if (a.high <= a.low) {
    a.low -= 1;
    a.high += 1;
  }
  // Room for a dot at either end.
  const double room = 0.012 * (a.high - a.low);
  a.low -= room;
  a.high += room;
  for (const double t : even_ticks(a.low, a.high, 5))
    if (t == std::floor(t) && t >= 0) a.ticks.push_back(t);
  return a;
}

/// A place in the SVG; far outside is far enough, whatever the value.
std::string place(const Axis& across, const Axis& up, std::int64_t x, double y) {
  const double left = kWidth * across.at(static_cast<double>(x));
  const double top = std::clamp(kHeight * (1 - up.at(y)), -kHeight, 2 * kHeight);
  char text[64];
  std::snprintf(text, sizeof text, "%.0f %.0f", left, top);
  return text;
}

bool drawable(const Axis& up, double y) {
  return std::isfinite(y) && (!up.log || y > 0);
}

std::string line_path(const Series& s, const Axis& across, const Axis& up) {
  std::string d;
  const bool dots = s.look == Series::Look::dots;
  bool open = false;
  for (std::size_t i = 0; i < s.x.size(); ++i) {
    if (!drawable(up, s.y[i])) {
      open = false;
      continue;
    }
    d += open && !dots ? 'L' : 'M';
    d += place(across, up, s.x[i], s.y[i]);
    // A line of no length shows as a round dot; so does a point between gaps.
    const bool alone = !open && (i + 1 == s.x.size() || !drawable(up, s.y[i + 1]));
    if (dots || alone) d += "h0";
    open = true;
  }
  return d;
}

/// The ranges as closed stretches: along the greatest and back along the least values.
std::string band_path(const Series& s, const Axis& across, const Axis& up) {
  std::string d;
  for (std::size_t i = 0; i < s.low.size();) {
    std::size_t end = i;
    while (end < s.low.size() && drawable(up, s.low[end]) && drawable(up, s.high[end])) ++end;
    for (std::size_t k = i; k < end; ++k) {
      d += k == i ? 'M' : 'L';
      d += place(across, up, s.x[k], s.high[k]);
    }
    for (std::size_t k = end; k > i; --k) {
      d += 'L';
      d += place(across, up, s.x[k - 1], s.low[k - 1]);
    }
    if (end > i) d += 'Z';
    i = end + 1;
  }
  return d;
}

std::string percent(double fraction) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f%%", 100 * fraction);
  return text;
}

std::string json_number(double v, int digits = 5) {
  if (!std::isfinite(v)) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, v);
  return text;
}

/// Safe inside a script element: no markup, whatever the text.
std::string json_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : clean_text(text)) {
    const auto u = static_cast<unsigned char>(c);
    if (u < 0x20 || c == '<' || c == '>' || c == '&' || c == '"' || c == '\\') {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", u);
      out += code;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

std::string clean_text(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    std::size_t length = c < 0x80 ? 1 : 0;
    if (c >= 0xC2 && c < 0xE0) length = 2;
    if (c >= 0xE0 && c < 0xF0) length = 3;
    if (c >= 0xF0 && c < 0xF5) length = 4;
    bool good = length > 0 && i + length <= text.size();
    for (std::size_t k = 1; good && k < length; ++k)
      good = (static_cast<unsigned char>(text[i + k]) & 0xC0) == 0x80;
    if (!good || (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F) {
      out += "\xEF\xBF\xBD";
      ++i;
      continue;
    }
    out.append(text, i, length);
    i += length;
  }
  return out;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : clean_text(text)) switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  return out;
}

std::string short_number(double v, int digits) {
  if (!std::isfinite(v)) return "–";
  struct Scale {
    double from;
    const char* mark;
  };
  char text[48];
  for (const Scale s : {Scale{1e12, "T"}, Scale{1e9, "G"}, Scale{1e6, "M"}, Scale{1e4, "k"}})
    if (std::abs(v) >= s.from) {
      std::snprintf(text, sizeof text, "%.*g%s", digits, v / (s.from == 1e4 ? 1e3 : s.from), s.mark);
      return text;
    }
  std::snprintf(text, sizeof text, "%.*g", digits, std::abs(v) < 1e-15 ? 0.0 : v);
  return text;
}

std::string chart_html(const Chart& chart, std::size_t number) {
  const Axis up = vertical(chart), across = horizontal(chart);
  std::string svg, labels;
  for (const double t : up.ticks) {
    const double top = 1 - up.at(t);
    svg += "<path class=grid d=\"M0 " + std::to_string(std::lround(kHeight * top)) + "H2000\"/>";
    labels += "<span class=y style=\"top:" + percent(top) + "\">" + short_number(t) + chart.unit + "</span>";
  }
  for (const double t : across.ticks)
    labels += "<span class=x style=\"left:" + percent(across.at(t)) + "\">" + short_number(t) + "</span>";
  if (chart.mark >= 0 && static_cast<double>(chart.mark) > across.low &&
      static_cast<double>(chart.mark) < across.high) {
    const double left = across.at(static_cast<double>(chart.mark));
    svg += "<path class=mark d=\"M" + std::to_string(std::lround(kWidth * left)) + " 0V1000\"><title>" +
           escaped(chart.mark_title) + "</title></path>";
  }
  const char* const looks[] = {"line", "faint", "bold", "dots"};
  for (const Series& s : chart.series) {
    const std::string color = " c" + std::to_string(s.color);
    if (const std::string band = band_path(s, across, up); !band.empty())
      svg += "<path class=\"band" + color + "\" d=\"" + band + "\"/>";
    svg += std::string("<path class=\"") + looks[static_cast<int>(s.look)] + color + "\" d=\"" +
           line_path(s, across, up) + "\"/>";
  }
  std::string legend;
  for (const Series& s : chart.series)
    if (s.hover && !s.label.empty() && chart.series.size() > 1)
      legend += "<span class=\"key " + std::string(looks[static_cast<int>(s.look)]) + " c" +
                std::to_string(s.color) + "\">" + escaped(s.label) + "</span>";
  std::string note = chart.note;
  if (up.log) note += note.empty() ? "logarithmic" : "; logarithmic";
  if (!up.note.empty()) note += (note.empty() ? "" : "; ") + up.note;
  return "<figure class=\"chart" + std::string(chart.wide ? " wide" : "") + "\"><figcaption><h3>" +
         escaped(chart.title) + "</h3>" + (note.empty() ? "" : "<p>" + escaped(note) + "</p>") +
         (legend.empty() ? "" : "<p class=legend>" + legend + "</p>") +
         "</figcaption><div class=plot tabindex=0 data-n=" + std::to_string(number) + " aria-label=\"" +
         escaped(chart.title) + " by " + escaped(chart.x_title) +
         "\"><svg viewBox=\"0 0 2000 1000\" preserveAspectRatio=none aria-hidden=true>" + svg + "</svg>" +
         labels + "<span class=xt>" + escaped(chart.x_title) + "</span></div></figure>\n";
}

std::string chart_json(const Chart& chart) {
  const Axis across = horizontal(chart);
  std::string text = "{\"a\":" + json_number(across.low, 15) + ",\"b\":" + json_number(across.high, 15) +
                     ",\"t\":" + json_text(chart.x_title) + ",\"u\":" + json_text(chart.unit) + ",\"s\":[";
  const auto next = [&] {  // no comma before the first of a list
    if (text.back() != '[') text += ',';
  };
  for (const Series& s : chart.series) {
    if (!s.hover) continue;
    next();
    text += "{\"n\":" + json_text(s.label) + ",\"c\":" + std::to_string(s.color) + ",\"x\":[";
    std::int64_t before = 0;  // differences are short
    for (const std::int64_t x : s.x) {
      next();
      text += std::to_string(x - before);
      before = x;
    }
    text += "],\"y\":[";
    for (const double y : s.y) {
      next();
      text += json_number(y);
    }
    text += "]}";
  }
  return text + "]}";
}

}  // namespace annulus
