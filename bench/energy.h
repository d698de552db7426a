// What the GPU's driver counts: energy and clocks. NVML is loaded when it is there, never linked.
#pragma once
#include <optional>
#include <string>

namespace annulus::bench {

class EnergyMeter {
 public:
  /// `device`: text that holds the device's "GPU-..." identity.
  explicit EnergyMeter(const std::string& device);
  ~EnergyMeter();
  EnergyMeter(const EnergyMeter&) = delete;
  EnergyMeter& operator=(const EnergyMeter&) = delete;

  /// Since the driver was loaded; nothing where the driver does not count.
  std::optional<double> joules() const;
  /// Of the multiprocessors, now.
  std::optional<double> megahertz() const;

 private:
  void* library_ = nullptr;
  void* device_ = nullptr;
};

}  // namespace annulus::bench
