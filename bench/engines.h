// annulus_bench --engines: attention engine against engine, on the same inputs in one run.
#pragma once
#include <functional>
#include <string>
#include <vector>
#include "measure.h"

namespace annulus::bench {

struct EngineCase {
  const char* pass;  // forward or backward
  std::string name;  // scene.tokens.dD
  std::int64_t D = 0;
  double flop = 0;     // of visible pairs: 4 H D forward, 10 H D backward
  bool own = false;    // measured with the portable engine too
  bool whole = false;  // unmasked: what the others of its pass and D are compared with
  std::function<Work(Backend&, Pool&)> prepare;
};

/// Around rows of N tokens; 32 query and 8 key/value heads.
std::vector<EngineCase> engine_cases(std::int64_t N);

struct EngineOptions {
  std::string only;         // beginning of "pass.name"
  std::int64_t tokens = 0;  // 0: 32,768
  double seconds = 0;       // 0: 5
};

/// Prints a row as soon as it is measured. Environment error without a GPU; fails at the end when an engine
/// gave something that is no answer.
void run_engines(const EngineOptions&, const std::string& command);

}  // namespace annulus::bench
