#include "config/values.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <vector>

namespace annulus {
namespace {

bool digit(char c) {
  return c >= '0' && c <= '9';
}

/// Plain digits with single underscores between them; empty when it is not that.
std::string plain_digits(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (digit(text[i])) {
      out += text[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < text.size() && digit(text[i - 1]) && digit(text[i + 1]);
    if (text[i] != '_' || !between) return {};
  }
  return out;
}

std::optional<std::int64_t> scaled(const std::string& digits, bool negative, std::int64_t unit) {
  std::int64_t n = 0;
  const std::string text = (negative ? "-" : "") + digits;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (code != std::errc{} || end != text.data() + text.size()) return {};
  if (__builtin_mul_overflow(n, unit, &n)) return {};
  return n;
}

/// `1e6`, `1.5e3`: decimal digits with an exponent, when the result is whole.
std::optional<std::int64_t> from_exponent(std::string_view text, bool negative) {
  const std::size_t e = text.find_first_of("eE");
  const std::string_view mantissa = text.substr(0, e);
  std::string_view power = text.substr(e + 1);
  if (!power.empty() && power.front() == '+') power.remove_prefix(1);
  const std::size_t dot = mantissa.find('.');
  std::string digits(mantissa.substr(0, dot));
  const std::string_view decimals = dot == std::string_view::npos ? "" : mantissa.substr(dot + 1);
  if (digits.empty() || (dot != std::string_view::npos && decimals.empty())) return {};
  digits += decimals;
  int exponent = 0;
  const auto [end, code] = std::from_chars(power.data(), power.data() + power.size(), exponent);
  if (power.empty() || code != std::errc{} || end != power.data() + power.size()) return {};
  if (!std::all_of(digits.begin(), digits.end(), digit) || exponent > 18 || exponent < -18) return {};
  exponent -= static_cast<int>(decimals.size());
  for (; exponent > 0; --exponent) digits += '0';
  for (; exponent < 0; ++exponent) {
    if (digits.back() != '0') return {};
    digits.pop_back();
    if (digits.empty()) digits = "0";
  }
  return scaled(digits, negative, 1);
}

}  // namespace

std::optional<std::int64_t> whole_number(std::string_view text) {
  const bool negative = !text.empty() && text.front() == '-';
  if (negative || (!text.empty() && text.front() == '+')) text.remove_prefix(1);
  if (text.empty()) return {};
  if (text.find_first_of("eE") != std::string_view::npos) return from_exponent(text, negative);
  std::int64_t unit = 1;
  switch (text.back()) {
    case 'K':
      unit = std::int64_t{1} << 10;
      break;
    case 'M':
      unit = std::int64_t{1} << 20;
      break;
    case 'G':
      unit = std::int64_t{1} << 30;
      break;
    default:
      break;
  }
  if (unit != 1) text.remove_suffix(1);
  const std::string digits = plain_digits(text);
  if (digits.empty()) return {};
  return scaled(digits, negative, unit);
}

std::optional<double> finite_number(std::string_view text) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  if (text.empty() || text.find_first_not_of("0123456789.eE+-") != std::string_view::npos) return {};
  double v = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (code != std::errc{} || end != text.data() + text.size() || !std::isfinite(v)) return {};
  return v;
}

std::optional<bool> truth(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return {};
}

std::string shortest(double v) {
  char text[40];
  const auto [end, code] = std::to_chars(text, text + sizeof text, v);
  return code == std::errc{} ? std::string(text, end) : std::string("nan");
}

int edit_distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(width));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = static_cast<int>(i);
  for (std::size_t j = 0; j < width; ++j) d[0][j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j < width; ++j) {
      const int replaced = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace annulus
