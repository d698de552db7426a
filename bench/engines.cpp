#include "engines.h"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>
#include "energy.h"
#include "ops/load_cuda.h"
#include "table.h"

namespace annulus::bench {
namespace {

constexpr std::int64_t kTokens = 32768;
constexpr double kSeconds = 5, kOwnSeconds = 2, kWarmUp = 0.5;
constexpr double kBatch = 0.2;  // seconds of work that are queued at once
constexpr double kTera = 1e-12, kPico = 1e12, kMilli = 1e3;

struct Engine {
  AttentionKernel kernel;
  const char* name;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Pool> pool;
};

struct Sustained {
  std::size_t calls = 0;
  double seconds = 0, joules = 0, megahertz = 0;  // of a call; of a call; mean. 0: not known
  double rate(const EngineCase& c) const { return c.flop / seconds; }
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Calls without a gap, two batches queued at a time, for `seconds` at least; `after_batch` between them.
template <class AfterBatch>
std::size_t keep_busy(Queue& queue, const Work& work, double seconds, std::size_t batch,
                      AfterBatch after_batch) {
  const double begun = now();
  std::size_t calls = 0;
  Mark before{};
  while (now() - begun < seconds) {
    for (std::size_t i = 0; i < batch; ++i) work.run();
    calls += batch;
    const Mark queued = queue.mark(work.lane);
    queue.sync(before);
    before = queued;
    after_batch();
  }
  queue.sync(before);
  return calls;
}

Sustained sustain(Queue& queue, const Work& work, double seconds, const EnergyMeter& meter) {
  const auto one = [&] {
    const double begun = now();
    work.run();
    queue.sync(queue.mark(work.lane));
    return now() - begun;
  };
  one();  // loads the kernel
  const auto batch = static_cast<std::size_t>(std::clamp(std::floor(kBatch / one()), 1.0, 1000.0));
  keep_busy(queue, work, std::min(kWarmUp, seconds), batch, [] {});

  std::vector<double> clocks;
  const std::optional<double> energy = meter.joules();
  const double begun = now();
  Sustained s;
  s.calls = keep_busy(queue, work, seconds, batch, [&] { clocks.push_back(meter.megahertz().value_or(0)); });
  const auto calls = static_cast<double>(s.calls);
  s.seconds = (now() - begun) / calls;
  if (energy) s.joules = (meter.joules().value_or(*energy) - *energy) / calls;
  s.megahertz = std::accumulate(clocks.begin(), clocks.end(), 0.0) / static_cast<double>(clocks.size());
  return s;
}

std::vector<Engine> start_engines() {
  const CudaProbe probe = cuda_probe();
  if (!probe.missing.empty()) environment_error("--engines compares engines of a GPU: " + probe.missing);
  std::vector<Engine> all;
  for (const auto& [kernel, name] : {std::pair{AttentionKernel::cudnn, "cudnn"},
                                     {AttentionKernel::hopper, "hopper"},
                                     {AttentionKernel::own, "own"}}) {
    CudaOptions options;
    options.attention = kernel;
    Engine e{kernel, name, load_cuda_backend(options), nullptr};
    e.pool = std::make_unique<Pool>(*e.backend);
    all.push_back(std::move(e));
  }
  return all;
}

std::string percent(double part, double of) {
  if (of <= 0) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * part / of);
  return text;
}

void print_engine_head() {
  std::printf(
      "\n| pass | case | engine | calls | ms | TFLOP/s | of cudnn | of unmasked | J | pJ/flop | W | MHz |\n"
      "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
}

void print_engine_row(const EngineCase& c, const Engine& e, const Sustained& s, double cudnn, double whole) {
  const double rate = s.rate(c);
  std::printf("| %s | %s | %s | %zu | %.3f | %.1f | %s | %s | %.3f | %.3f | %.0f | %.0f |\n", c.pass,
              c.name.c_str(), e.name, s.calls, s.seconds * kMilli, rate * kTera, percent(rate, cudnn).c_str(),
              percent(rate, whole).c_str(), s.joules, s.joules / c.flop * kPico, s.joules / s.seconds,
              s.megahertz);
  std::fflush(stdout);
}

/// Empty, or why what the engine gave is no answer. No calls: the engine does not do the case.
std::string measure_engine(const EngineCase& c, Engine& e, double seconds, const EnergyMeter& meter,
                           Sustained& result) {
  Work work;
  try {
    work = c.prepare(*e.backend, *e.pool);
  } catch (const Error& refusal) {
    std::fprintf(stderr, "%s %s by %s is left out: %s\n", c.pass, c.name.c_str(), e.name, refusal.what());
    return {};
  }
  work.run();
  std::string fault = fault_of(*e.pool, work.outputs);
  if (!fault.empty()) return fault;
  result = sustain(e.backend->queue(), work, seconds, meter);
  return fault_of(*e.pool, work.outputs);
}

}  // namespace

void run_engines(const EngineOptions& options, const std::string& command) {
  std::vector<EngineCase> cases = engine_cases(options.tokens > 0 ? options.tokens : kTokens);
  std::erase_if(cases, [&](const EngineCase& c) {
    return !(std::string(c.pass) + "." + c.name).starts_with(options.only);
  });
  if (cases.empty())
    usage_error("no case begins with \"" + options.only +
                "\": names are \"forward.\" or \"backward.\", then those of the table that --engines prints");
  std::vector<Engine> engines = start_engines();
  const EnergyMeter meter(engines.front().backend->describe());
  print_heading(engines.front().backend->describe(), command);
  print_engine_head();

  const double seconds = options.seconds > 0 ? options.seconds : kSeconds, begun = now();
  std::map<std::tuple<std::string, std::int64_t, std::string>, double> whole;  // rates of unmasked cases
  int faults = 0;
  for (const EngineCase& c : cases) {
    double cudnn = 0;
    for (Engine& e : engines) {
      if (e.kernel == AttentionKernel::own && !c.own) continue;
      Sustained s;
      const bool brief = e.kernel == AttentionKernel::own;
      const std::string fault =
          measure_engine(c, e, brief ? std::min(seconds, kOwnSeconds) : seconds, meter, s);
      e.pool->clear();
      if (!fault.empty()) {
        ++faults, s.calls = 0;
        std::printf("| %s | %s | %s | refused: %s |\n", c.pass, c.name.c_str(), e.name, fault.c_str());
      }
      if (s.calls == 0) continue;
      double& reference = whole[{c.pass, c.D, e.name}];
      if (c.whole) reference = s.rate(c);
      if (e.kernel == AttentionKernel::cudnn) cudnn = s.rate(c);
      print_engine_row(c, e, s, cudnn, reference);
    }
  }
  std::printf("\n%.0f s in all\n", now() - begun);
  if (faults > 0) fail("annulus_bench", std::to_string(faults) + " cases were refused");
}

}  // namespace annulus::bench
