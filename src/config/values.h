// Text to value and back, for options: whole numbers, finite numbers, truth values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace annulus {

/// A whole signed 64-bit number: `1048576`, `1_048_576`, `1e6`, or with the suffix K, M or G (1024, 1024^2,
/// 1024^3: the way in which context lengths are counted). Nothing when it is anything else, `1.5` included,
/// or does not fit.
std::optional<std::int64_t> whole_number(std::string_view text);
/// A finite decimal number. Nothing for nan, inf, hexadecimal digits, or what overflows.
std::optional<double> finite_number(std::string_view text);
/// `true` or `false`.
std::optional<bool> truth(std::string_view text);

/// The shortest text that reads back as the same number.
std::string shortest(double);

/// Insertions, deletions, replacements and swaps of neighbours that lead from a to b.
int edit_distance(std::string_view a, std::string_view b);

}  // namespace annulus
