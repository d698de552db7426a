// One chart as HTML: lines in an inline SVG that stretches with its box, labels as text beside it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace annulus {

struct Series {
  std::string label;
  int color = 0;  // of the palette
  std::vector<std::int64_t> x;
  std::vector<double> y;          // not a number: a gap
  std::vector<double> low, high;  // of what a point stands for; empty: nothing beside the mean
  enum class Look : std::uint8_t { line, faint, bold, dots } look = Look::line;
  bool hover = true;
};

struct Chart {
  std::string title, note;  // note: a word under the title
  std::string unit;         // after values: " s", "%"
  std::string x_title = "step";
  std::vector<Series> series;
  bool from_zero = false;       // the axis begins at 0
  bool may_log = false;         // logarithmic where values span much
  bool wide = false;            // takes the whole width
  std::int64_t mark = -1;       // a step to mark with a line
  std::string mark_title = {};  // what happened there
};

/// What is no UTF-8, or a control character, replaced.
std::string clean_text(const std::string&);
/// The same for HTML: markup escaped too.
std::string escaped(const std::string&);
/// "12.3k", "0.0002", "3.217": `digits` significant ones.
std::string short_number(double, int digits = 4);

/// The figure. `number`: its place among the page's charts, by which the script finds its values.
std::string chart_html(const Chart&, std::size_t number);
/// The chart's values for the script: a JSON object.
std::string chart_json(const Chart&);

}  // namespace annulus
