// The rates file of a machine, from what was measured on it.
#pragma once
#include <string>
#include <vector>
#include "cases.h"
#include "machine.h"

namespace annulus::bench {

/// Lines that annulus plan reads (src/ops/dry/rates.h). What one device cannot measure (links, latency) keeps
/// the figures that stand in rates_file.cpp, and says so.
class RatesFile {
 public:
  /// Memory that is taken before anything was allocated counts as the libraries' own.
  explicit RatesFile(Backend&);
  void add(const Case&, const Timing&);
  /// `sizes`: for the scratch of attention. Environment error when the file cannot be written.
  void write(const std::string& path, const std::string& command, const Limits&, const Sizes&) const;

 private:
  struct Sum {
    double amount = 0, seconds = 0;
  };
  struct Line {
    std::string key;
    double size, rate;
  };
  Backend& backend_;
  double total_gb_, start_gb_;
  Sum matmul_, into_f32_;
  std::vector<Line> memory_, attention_;
};

}  // namespace annulus::bench
