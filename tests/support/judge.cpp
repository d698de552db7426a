#include "support/judge.h"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include "core/bf16.h"
#include "core/rng.h"
#include "support/backends.h"
#include "support/budget.h"

namespace annulus::test {
namespace {

double largest(const Doubles& x) {
  double m = 0.0;
  for (const double v : x) m = std::max(m, std::abs(v));
  return m;
}

/// No element may be beyond its tolerance. --log_level=message tells how much of it was used.
void within_tolerance(const std::string& what, const Floats& got, const Expected& want) {
  BOOST_REQUIRE_EQUAL(got.size(), want.exact.size());
  double worst_share = 0.0;
  std::size_t where = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool infinite = std::isinf(want.exact[i]);
    const double error =
        infinite ? (got[i] == want.exact[i] ? 0.0 : INFINITY) : std::abs(got[i] - want.exact[i]);
    const double share = error / (want.tolerance[i] + 1e-45);
    if (share <= worst_share) continue;  // false for NaN too
    worst_share = share;
    where = i;
    if (std::isnan(share)) break;
  }
  BOOST_TEST_MESSAGE(what << ": " << want.name << ": " << worst_share << " of the tolerance");
  if (worst_share <= 1.0) return;
  BOOST_ERROR(what << ": " << want.name << "[" << where << "] is " << got[where] << ", exact "
                   << want.exact[where] << ", tolerance " << want.tolerance[where]);
}

/// Infinities agree; they are then left out of what follows.
void drop_infinities(Floats& got, Doubles& exact) {
  for (std::size_t i = 0; i < got.size(); ++i)
    if (std::isinf(exact[i]) && got[i] == exact[i]) got[i] = 0.f, exact[i] = 0.0;
}

void within_budget_of(const std::string& what, DType T, Floats got, Floats plain, const Expected& want) {
  BOOST_REQUIRE_EQUAL(got.size(), want.exact.size());
  Doubles exact = want.exact, also = want.exact;
  drop_infinities(got, exact);
  drop_infinities(plain, also);
  const double loop = 2 * worst(plain, exact) + 1e-7,
               rounding = T == DType::f32 ? 16 * kF32 * largest(exact) : 0.0;
  const double bound = std::max({loop, 2 * largest(want.tolerance), rounding});
  BOOST_TEST(worst(got, exact) <= bound, what << ": " << want.name << ": worst error " << worst(got, exact)
                                              << ", bound " << bound << ", of the plain loop "
                                              << worst(plain, exact));
}

}  // namespace

Expected rounded_once(const char* name, DType T, Doubles exact,
                      const std::function<double(std::size_t)>& slack) {
  Doubles tolerance(exact.size());
  for (std::size_t i = 0; i < exact.size(); ++i)
    tolerance[i] = half_ulp(T) * std::abs(exact[i]) + slack(i) * (1 + half_ulp(T));
  return {name, std::move(exact), std::move(tolerance)};
}

Expected rounded_once(const char* name, DType T, Doubles exact, double slack) {
  return rounded_once(name, T, std::move(exact), [slack](std::size_t) { return slack; });
}

void hold(const std::string& what, const Operation& operation, const std::vector<Expected>& expected,
          const std::optional<std::vector<Floats>>& plain) {
  BOOST_TEST_CONTEXT(what) {
    std::vector<DType> types;
    const Operation noting_types = [&](Device& device) {
      std::vector<Tensor> outputs = operation(device);
      types.clear();
      for (const Tensor& t : outputs) types.push_back(t.dtype);
      return outputs;
    };
    const std::vector<Floats> reference = run_twice(cpu(), noting_types);
    BOOST_REQUIRE_EQUAL(reference.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      within_tolerance(what + " on cpu", reference[i], expected[i]);
    for (const auto& [name, backend] : backends().subspan(1)) {
      const std::vector<Floats> got = run_twice(*backend, noting_types);
      const std::vector<Floats>& loop = plain ? *plain : reference;
      for (std::size_t i = 0; i < expected.size(); ++i)
        within_budget_of(what + " on " + name, types[i], got[i], loop[i], expected[i]);
    }
  }
}

Floats random_values(DType T, std::uint64_t stream, std::int64_t n, double spread) {
  Floats values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto v = static_cast<float>(spread * normal(20, Draw::test, stream, i));
    values[i] = T == DType::bf16 ? widen(narrow(v)) : v;
  }
  return values;
}

Floats random_values(DType T, std::uint64_t stream, Shape shape, double spread) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) n *= d;
  return random_values(T, stream, n, spread);
}

Doubles to_doubles(const Floats& x) {
  return {x.begin(), x.end()};
}

Floats to_floats(const Doubles& x, DType T) {
  Floats y(x.begin(), x.end());
  if (T == DType::bf16)
    for (float& v : y) v = widen(narrow(v));
  return y;
}

double gradient_error(const std::function<double(const Doubles&)>& f, Doubles x, const Doubles& analytic) {
  constexpr double kStep = 1e-5;  // error about kStep^2 + 1e-16 / kStep
  double error = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + kStep;
    const double above = f(x);
    x[i] = at - kStep;
    const double below = f(x);
    x[i] = at;
    error = std::max(error, std::abs((above - below) / (2 * kStep) - analytic[i]));
  }
  return error / std::max(largest(analytic), 1e-300);
}

}  // namespace annulus::test
