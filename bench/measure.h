// How one case is timed.
#pragma once
#include <functional>
#include <string>
#include <vector>
#include "pool.h"

namespace annulus::bench {

/// One call of an operation, ready to be repeated.
struct Work {
  std::function<void()> run;
  std::vector<Tensor> outputs;     // f32, bf16 or f64; all are written by a call
  std::function<void()> before{};  // restores what a call overwrites; not timed
  Lane lane = Lane::compute;
};

struct Effort {
  int warm_up = 3;
  double seconds = 0.3;  // timed at least so long ...
  int calls = 20;        // ... and at least so often, unless that takes `patience` times as long
  double patience = 10;
};

struct Timing {
  double median = 0, p10 = 0, p90 = 0;  // seconds a call
  std::size_t calls = 0;
};

/// Times calls one by one between two stamps. Each batch begins with a call that is not timed, so that the
/// device never waits for the host's launch within one that is.
Timing measure(Backend&, const Work&, const Effort&);

/// Empty when samples of every output are finite and not all zero; otherwise what is wrong.
std::string fault_of(Pool&, const std::vector<Tensor>& outputs);

}  // namespace annulus::bench
