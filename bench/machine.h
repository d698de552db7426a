// What the machine itself can do, measured before anything is held against it.
#pragma once
#include "measure.h"

namespace annulus::bench {

struct Limit {
  const char* name;
  std::string shape;
  double amount;  // bytes or flop of a call
  Timing timing;
  double rate() const { return amount / timing.median; }
};

struct Limits {
  Limit copy;                // from device to device, bytes read and written
  Limit matmul;              // bf16, a large square
  Limit to_device, to_host;  // pinned memory
  Limit both;                // each way, while the other is at work
};

/// On a CPU sizes are small. `seconds`: how long each is sustained.
Limits measure_limits(Backend&, Pool&, bool small, double seconds);

}  // namespace annulus::bench
