#include "core/progress.h"
#include <unistd.h>
#include <algorithm>
#include <cstdio>

namespace annulus {
namespace {

constexpr int kBar = 20;  // characters
constexpr std::chrono::milliseconds kPause{200};

struct Scale {
  double size;
  const char* name;
};

/// The unit in which `most` has at most a few digits.
Scale scale_of(double most, const std::string& unit) {
  if (unit != "B") return {1, unit.c_str()};
  if (most >= 1e9) return {1e9, "GB"};
  if (most >= 1e6) return {1e6, "MB"};
  return most >= 1e3 ? Scale{1e3, "kB"} : Scale{1, "B"};
}

std::string number(double value, double size) {
  char text[32];
  std::snprintf(text, sizeof text, size > 1 ? "%.2f" : "%.0f", value / size);
  return text;
}

std::string rate_text(double per_second, const std::string& unit) {
  const Scale scale = scale_of(per_second, unit);
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ", per_second / scale.size);
  return std::string(text).append(scale.name).append("/s");
}

std::string clock_text(double seconds) {
  const auto s = static_cast<long long>(seconds + 0.5);
  char text[40];
  if (s >= 3600)
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  else
    std::snprintf(text, sizeof text, "%lld:%02lld", s / 60, s % 60);
  return text;
}

}  // namespace

bool on_a_terminal() {
  return isatty(STDERR_FILENO) == 1;
}

std::string progress_line(const std::string& what, std::int64_t done, std::int64_t all,
                          const std::string& unit, double seconds) {
  const auto have = static_cast<double>(done), whole = static_cast<double>(all);
  const double rate = seconds > 0 ? have / seconds : 0;
  std::string line = what;
  if (all > 0) {
    const double share = std::clamp(have / whole, 0.0, 1.0);
    const int full = static_cast<int>(share * kBar);
    char percent[16];
    std::snprintf(percent, sizeof percent, "] %3d %%  ", static_cast<int>(share * 100));
    const Scale scale = scale_of(whole, unit);
    line.append(" [").append(static_cast<std::size_t>(full), '#');
    line.append(static_cast<std::size_t>(kBar - full), '-').append(percent).append(number(have, scale.size));
    line.append(" of ").append(number(whole, scale.size)).append(" ").append(scale.name);
  } else {
    const Scale scale = scale_of(have, unit);
    line.append(" ").append(number(have, scale.size)).append(" ").append(scale.name);
  }
  if (rate > 0) {
    line.append(", ").append(rate_text(rate, unit));
    if (all > done) line.append(", ").append(clock_text((whole - have) / rate)).append(" left");
  }
  return line;
}

Progress::Progress(std::string what, std::string unit, bool shown)
    : what_(std::move(what)), unit_(std::move(unit)), shown_(shown) {}

void Progress::at(std::int64_t done, std::int64_t all) {
  if (!shown_) return;
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + kPause;
  const std::string line =
      progress_line(what_, done, all, unit_, std::chrono::duration<double>(now - start_).count());
  const std::size_t blanks = line.size() < width_ ? width_ - line.size() : 0;
  std::fprintf(stderr, "\r%s%s", line.c_str(), std::string(blanks, ' ').c_str());
  std::fflush(stderr);
  width_ = line.size();
}

void Progress::clear() {
  if (width_ == 0) return;
  std::fprintf(stderr, "\r%s\r", std::string(width_, ' ').c_str());
  std::fflush(stderr);
  width_ = 0;
  next_ = start_;
}

}  // namespace annulus
