// How fast a device is: a small text file, measured once, from which seconds are worked out anywhere.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>
#include "ops/cost.h"

namespace annulus {

/// Lines `key value`, or `key size value` where a rate depends on a size (between two sizes the logarithm of
/// the size interpolates, beyond them the nearest holds); `#` begins a comment. The keys that every file has
/// are those of kRequired in rates.cpp; of operations:
///   tflops.RATE   of what multiplies (Cost::rate)
///   of_copy.RATE  of what moves bytes: the share of `copy_gbs`
class Rates {
 public:
  /// Input error that names file and line.
  static Rates parse(const std::string& text, const std::string& where);
  static Rates read(const std::string& path);

  const std::string& device() const { return device_; }
  double number(const std::string& key) const;  // of the required ones
  /// Seconds of one call on the device alone. An operation that the file does not know goes at the rate of a
  /// copy or of a plain matmul; its name is remembered.
  double seconds(const Cost&) const;
  /// Names that seconds() was asked for and the file lacks.
  const std::set<std::string>& unknown() const { return unknown_; }

 private:
  double at(const std::string& key, double size, double missing) const;
  std::string device_;
  std::map<std::string, std::map<double, double>> values_;  // by size; 0: whatever the size
  mutable std::set<std::string> unknown_;
};

}  // namespace annulus
