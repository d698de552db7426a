#include "table.h"
#include <cstdio>
#include <ctime>
#include "train/facts.h"

namespace annulus::bench {
namespace {

constexpr double kMicro = 1e6, kGiga = 1e-9, kTera = 1e-12;

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  char text[16] = "?";
  if (gmtime_r(&now, &utc) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

void print_limit(const Limit& l, double unit, const char* unit_name) {
  std::printf("| %s | %s | %.1f | %.1f-%.1f | %.*f %s |\n", l.name, l.shape.c_str(), l.timing.median * kMicro,
              l.timing.p10 * kMicro, l.timing.p90 * kMicro, l.rate() * unit < 10 ? 2 : 1, l.rate() * unit,
              unit_name);
}

const char* title(Kind kind) {
  switch (kind) {
    case Kind::memory:
      return "Operations bound by memory";
    case Kind::matmul:
      return "Matrix products";
    case Kind::attention:
      return "Attention";
  }
  return "?";
}

}  // namespace

void print_heading(const std::string& device, const std::string& command) {
  std::printf("# %s, %s, %s\nrun: `%s`\n", program_version().c_str(), today().c_str(), device.c_str(),
              command.c_str());
}

void print_limits(const Limits& l) {
  std::printf(
      "\n## Limits of the machine, sustained\n| limit | size | us | p10-p90 | rate "
      "|\n|---|---|--:|--:|--:|\n");
  print_limit(l.copy, kGiga, "GB/s");
  print_limit(l.matmul, kTera, "TFLOP/s");
  print_limit(l.to_device, kGiga, "GB/s");
  print_limit(l.to_host, kGiga, "GB/s");
  print_limit(l.both, kGiga, "GB/s");
  std::fflush(stdout);
}

void print_table_head(Kind kind) {
  const bool bytes = kind == Kind::memory;
  std::printf(
      "\n## %s\n| operation | shape | us | p10-p90 | calls | %s | %% of %s "
      "|\n|---|---|--:|--:|--:|--:|--:|\n",
      title(kind), bytes ? "GB/s" : "TFLOP/s", bytes ? "copy" : "matmul");
}

void print_row(const Case& c, const Timing& t, const Limits& limits) {
  const bool bytes = c.kind == Kind::memory;
  const double rate = c.amount / t.median, limit = bytes ? limits.copy.rate() : limits.matmul.rate();
  const double shown = rate * (bytes ? kGiga : kTera);
  std::printf("| %s | %s | %.1f | %.1f-%.1f | %zu | %.*f | %.1f |\n", c.name.c_str(), c.shape.c_str(),
              t.median * kMicro, t.p10 * kMicro, t.p90 * kMicro, t.calls,
              shown < 10 ? 3
              : bytes    ? 0
                         : 1,
              shown, 100 * rate / limit);
  std::fflush(stdout);
}

void print_refusal(const Case& c, const std::string& why) {
  std::printf("| %s | %s | refused: %s | | | | |\n", c.name.c_str(), c.shape.c_str(), why.c_str());
  std::fflush(stdout);
}

}  // namespace annulus::bench
