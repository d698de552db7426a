// The backends that this machine has: tests of operations run on each of them.
#pragma once
#include <boost/test/unit_test.hpp>
#include <span>
#include "ops/backend.h"

namespace annulus::test {

struct NamedBackend {
  const char* name;
  Backend* backend;
};

/// The first is the CPU, which others are held to; then CUDA, where a GPU answers.
std::span<const NamedBackend> backends();
Backend& cpu();
/// Null without a GPU. Ranks of a test share the GPUs there are.
Backend* cuda();

/// What whole models are trained on: the CPU, or the GPU when ANNULUS_TEST_DEVICE=cuda asks for it.
Backend& tested();

/// For cases that need a GPU: `* boost::unit_test::precondition(needs_gpu)`. Without one they are reported as
/// skipped.
boost::test_tools::assertion_result needs_gpu(boost::unit_test::test_unit_id);

}  // namespace annulus::test
