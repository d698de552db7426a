// annulus_bench: the machine's limits, then every operation against them. See bench/results/README.md.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <thread>
#include "cases.h"
#include "engines.h"
#include "machine.h"
#include "ops/load_cuda.h"
#include "rates_file.h"
#include "table.h"

namespace annulus::bench {
namespace {

constexpr const char* kUsage =
    "usage: annulus_bench [--only PREFIX] [--tokens N] [--seconds S] [--quick] [--rates FILE] [--engines]\n"
    "  --only PREFIX  limits, and operations whose name begins so: matmul, attention_bwd.causal, ...\n"
    "  --tokens N     tokens of a row; 32768, on a CPU 512 (where widths are an eighth, too)\n"
    "  --seconds S    at least so long on each operation; 0.3, attention 1\n"
    "  --quick        a look: a twentieth of a second each, and few repetitions\n"
    "  --rates FILE   also writes what annulus plan reads\n"
    "  --engines      attention engine against engine instead, with energy; 5 s each, our portable one 2 s;\n"
    "                 --only forward, backward.causal, ...";

constexpr std::int64_t kFewestTokens = 16;  // so that a document and a window have one at least
constexpr std::int64_t kCpuTokens = 512, kCpuShrink = 8;
constexpr double kLimitSeconds = 2, kQuickSeconds = 0.05;

struct Options {
  std::string only, rates;
  std::int64_t tokens = 0;  // 0: by the backend
  double seconds = 0;       // 0: by the kind
  bool quick = false, engines = false, help = false;
};

template <class Number>
Number number(const std::string& name, const std::string& text, Number least) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= least))
    usage_error(name + " is \"" + text + "\": it must be a number from " + std::to_string(least) + " on");
  return value;
}

Options parse(const std::vector<std::string>& arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i];
    const auto value = [&]() -> const std::string& {
      if (i + 1 == arguments.size()) usage_error(name + " needs a value (annulus_bench --help)");
      return arguments[++i];
    };
    if (name == "--only")
      options.only = value();
    else if (name == "--tokens")
      options.tokens = number(name, value(), kFewestTokens);
    else if (name == "--seconds")
      options.seconds = number(name, value(), 0.001);
    else if (name == "--rates")
      options.rates = value();
    else if (name == "--quick")
      options.quick = true;
    else if (name == "--engines")
      options.engines = true;
    else if (name == "--help" || name == "-h")
      options.help = true;
    else
      usage_error("\"" + name + "\" is no option (annulus_bench --help)");
  }
  return options;
}

std::unique_ptr<Backend> find_backend() {
  if (cuda_probe().missing.empty()) return load_cuda_backend({});
  return make_cpu_backend(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
}

Sizes sizes_of(const Options& options, bool cpu) {
  Sizes s;
  if (cpu) {
    s.N = kCpuTokens;
    for (std::int64_t* width : {&s.C, &s.F, &s.H, &s.G, &s.V, &s.E, &s.moe_C, &s.moe_F}) *width /= kCpuShrink;
  }
  if (options.tokens > 0) s.N = options.tokens;
  s.loss_tile = std::min(s.loss_tile, s.N);
  if (options.quick) s.least_seconds = s.attention_seconds = kQuickSeconds;
  if (options.seconds > 0) s.least_seconds = s.attention_seconds = options.seconds;
  return s;
}

/// Checks what the operation gives, times it, and checks once more what it left.
bool run_case(Backend& backend, Pool& pool, const Case& c, const Limits& limits, bool quick,
              RatesFile& rates) {
  const Work work = c.prepare(backend, pool);
  if (work.before) work.before();
  work.run();
  std::string fault = fault_of(pool, work.outputs);
  Timing timing;
  if (fault.empty()) {
    Effort effort{.seconds = c.seconds};
    if (quick) effort.warm_up = 1, effort.calls = 3;
    timing = measure(backend, work, effort);
    fault = fault_of(pool, work.outputs);
  }
  if (fault.empty()) {
    print_row(c, timing, limits);
    rates.add(c, timing);
  } else {
    print_refusal(c, fault);
  }
  pool.clear();
  return fault.empty();
}

Exit run(const Options& options, const std::string& command) {
  if (options.engines) {
    if (!options.rates.empty()) usage_error("--rates does not go with --engines: leave out one of them");
    const double seconds = options.seconds > 0 || !options.quick ? options.seconds : kQuickSeconds;
    run_engines({.only = options.only, .tokens = options.tokens, .seconds = seconds}, command);
    return Exit::ok;
  }
  const std::unique_ptr<Backend> backend = find_backend();
  const bool cpu = backend->memory().place() == Place::host;
  const Sizes sizes = sizes_of(options, cpu);
  std::vector<std::vector<Case>> tables = {memory_cases(sizes), moe_memory_cases(sizes), matmul_cases(sizes),
                                           moe_matmul_cases(sizes), attention_cases(sizes)};
  for (std::vector<Case>& cases : tables)
    std::erase_if(cases, [&](const Case& c) { return !c.name.starts_with(options.only); });
  if (options.only != "limits" &&
      std::all_of(tables.begin(), tables.end(), [](auto& t) { return t.empty(); }))
    usage_error("no operation's name begins with \"" + options.only +
                "\": names are those of the tables that annulus_bench prints without --only");

  print_heading(backend->describe(), command);
  RatesFile rates(*backend);
  Pool pool(*backend);
  const Limits limits = measure_limits(*backend, pool, cpu, options.quick ? kQuickSeconds : kLimitSeconds);
  print_limits(limits);
  int refused = 0;
  for (const std::vector<Case>& cases : tables) {
    if (!cases.empty()) print_table_head(cases.front().kind);
    for (const Case& c : cases) refused += run_case(*backend, pool, c, limits, options.quick, rates) ? 0 : 1;
  }
  if (!options.rates.empty()) rates.write(options.rates, command, limits, sizes);
  if (refused > 0) fail("annulus_bench", std::to_string(refused) + " operations were refused");
  return Exit::ok;
}

}  // namespace
}  // namespace annulus::bench

int main(int argc, char** argv) {
  using namespace annulus;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  std::string command = "annulus_bench";
  for (const std::string& a : arguments) command += " " + a;
  try {
    const bench::Options options = bench::parse(arguments);
    if (options.help) {
      std::printf("%s\n", bench::kUsage);
      return 0;
    }
    return static_cast<int>(bench::run(options, command));
  } catch (const Error& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "annulus_bench: %s\n", e.what());
    return static_cast<int>(e.code);
  } catch (const std::exception& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "annulus_bench: %s\n", e.what());
    return static_cast<int>(Exit::bug);
  }
}
