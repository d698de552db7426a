// Flags of subcommands that are no keys of a run.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include "app/commands.h"

namespace annulus {

bool take_flag(std::vector<std::string>& arguments, const std::string& name) {
  return std::erase(arguments, name) > 0;
}

namespace {

std::optional<std::string> take_value(std::vector<std::string>& arguments, const std::string& name) {
  const auto flag = std::find(arguments.begin(), arguments.end(), name);
  if (flag == arguments.end()) return {};
  if (flag + 1 == arguments.end()) usage_error(name + " needs a value");
  const std::string value = *(flag + 1);
  arguments.erase(flag, flag + 2);
  return value;
}

template <class Number>
Number read(const std::string& name, const std::string& text, const std::string& wanted, bool right(Number)) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !right(value))
    usage_error(name + " is \"" + text + "\": it must be " + wanted);
  return value;
}

}  // namespace

std::string take_text(std::vector<std::string>& arguments, const std::string& name,
                      const std::string& missing) {
  return take_value(arguments, name).value_or(missing);
}

std::int64_t take_number(std::vector<std::string>& arguments, const std::string& name, std::int64_t missing,
                         std::int64_t least) {
  const std::optional<std::string> text = take_value(arguments, name);
  if (!text) return missing;
  const std::string wanted = "a whole number from " + std::to_string(least) + " on";
  const auto value = read<std::int64_t>(name, *text, wanted, [](std::int64_t) { return true; });
  if (value < least) usage_error(name + " is \"" + *text + "\": it must be " + wanted);
  return value;
}

std::int64_t take_layers(std::vector<std::string>& arguments) {
  return take_number(arguments, "--layers", 0, 1);
}

void keep_layers(ModelConfig& model, std::int64_t layers) {
  if (layers == 0) return;
  if (layers > model.L) usage_error("--layers is beyond the model's " + std::to_string(model.L) + " layers");
  model.L = layers;
  model.windows.resize(static_cast<std::size_t>(layers));
  if (!model.sparse.empty()) model.sparse.resize(static_cast<std::size_t>(layers));
}

double take_real(std::vector<std::string>& arguments, const std::string& name) {
  const std::optional<std::string> text = take_value(arguments, name);
  if (!text) return 0;
  return read<double>(name, *text, "a number above 0", [](double v) { return std::isfinite(v) && v > 0; });
}

}  // namespace annulus
