// Flags of subcommands that are no keys of a run.
#include <charconv>
#include <cmath>
#include "app/commands.h"

namespace annulus {

bool take_flag(std::vector<std::string>& arguments, const std::string& name) {
  return std::erase(arguments, name) > 0;
}

std::string take_text(std::vector<std::string>& arguments, const std::string& name,
                      const std::string& missing) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] != name) continue;
    if (i + 1 == arguments.size()) usage_error(name + " needs a value");
    const std::string text = arguments[i + 1];
    arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i),
                    arguments.begin() + static_cast<std::ptrdiff_t>(i) + 2);
    return text;
  }
  return missing;
}

namespace {

template <class Number>
Number read(const std::string& name, const std::string& text, const std::string& wanted,
            bool (*right)(Number)) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !right(value))
    usage_error(name + " is \"" + text + "\": it must be " + wanted);
  return value;
}

}  // namespace

std::int64_t take_number(std::vector<std::string>& arguments, const std::string& name, std::int64_t missing,
                         std::int64_t least) {
  const std::string text = take_text(arguments, name, std::to_string(missing));
  const auto value = read<std::int64_t>(name, text, "a whole number from " + std::to_string(least) + " on",
                                        [](std::int64_t) { return true; });
  if (value < least && value != missing)
    usage_error(name + " is \"" + text + "\": it must be a whole number from " + std::to_string(least) +
                " on");
  return value;
}

double take_real(std::vector<std::string>& arguments, const std::string& name) {
  const std::string text = take_text(arguments, name, "");
  if (text.empty()) return 0;
  return read<double>(name, text, "a number above 0", [](double v) { return std::isfinite(v) && v > 0; });
}

}  // namespace annulus
