// The backends that this machine has: tests of operations run on each of them.
#pragma once
#include <span>
#include "ops/backend.h"

namespace annulus::test {

struct NamedBackend {
  const char* name;
  Backend* backend;
};

/// The first is the CPU, which others are held to.
std::span<const NamedBackend> backends();
Backend& cpu();

}  // namespace annulus::test
