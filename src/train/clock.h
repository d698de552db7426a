// Seconds on a clock that only goes forward.
#pragma once
#include <chrono>

namespace annulus {

inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace annulus
