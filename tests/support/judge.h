// Holds an operation's outputs to the exact answer, on every backend.
#pragma once
#include <optional>
#include <string>
#include "support/device.h"

namespace annulus::test {

/// Largest relative error of one rounding to nearest: half a unit in the last place.
constexpr double half_ulp(DType T) {
  return T == DType::bf16 ? 0x1p-8 : 0x1p-24;
}
constexpr double kF32 = half_ulp(DType::f32);

/// One output: its exact values, and how far from them the CPU backend may be, element by element.
struct Expected {
  const char* name;
  Doubles exact;
  Doubles tolerance;
};

/// Tolerance of one rounding to T of a value that errs by `slack` already.
Expected rounded_once(const char* name, DType T, Doubles exact,
                      const std::function<double(std::size_t)>& slack);
Expected rounded_once(const char* name, DType T, Doubles exact, double slack = 0.0);

/// Runs an operation on every backend, twice. On the CPU each element errs at most by its tolerance. On
/// others the worst element errs at most twice as much as the worst of `plain` does or as the largest
/// tolerance, and an f32 output may always err by 16 half-ulps of its largest value. `plain` is what rounds
/// wherever a backend may round: the CPU's own outputs unless given.
void hold(const std::string& what, const Operation&, const std::vector<Expected>&,
          const std::optional<std::vector<Floats>>& plain = {});

/// Normal numbers times `spread`, rounded to T; `stream` tells vectors apart.
Floats random_values(DType T, std::uint64_t stream, std::int64_t n, double spread = 1.0);
Floats random_values(DType T, std::uint64_t stream, Shape, double spread = 1.0);
Doubles to_doubles(const Floats&);
Floats to_floats(const Doubles&, DType T = DType::f32);  // rounded to T

/// Largest |analytic - central difference| over all elements of x, relative to the largest |analytic|.
double gradient_error(const std::function<double(const Doubles&)>& f, Doubles x, const Doubles& analytic);

inline constexpr DType kTypes[] = {DType::f32, DType::bf16};

}  // namespace annulus::test
