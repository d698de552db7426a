#include "energy.h"
#include <dlfcn.h>

namespace annulus::bench {
namespace {

// From NVML's manual: 0 is success, clock 1 is that of the multiprocessors, energy is in millijoules.
using Plain = int();
using ByUuid = int(const char*, void**);
using Energy = int(void*, unsigned long long*);
using Clock = int(void*, int, unsigned int*);
constexpr int kSuccess = 0, kMultiprocessors = 1;

template <class Function>
Function* find(void* library, const char* name) {
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}

std::string identity(const std::string& text) {
  constexpr std::size_t kLength = 40;  // GPU-, then 32 digits and four dashes
  const std::size_t at = text.find("GPU-");
  return at == std::string::npos ? std::string() : text.substr(at, kLength);
}

}  // namespace

EnergyMeter::EnergyMeter(const std::string& device) : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW)) {
  auto* const start = find<Plain>(library_, "nvmlInit_v2");
  auto* const by_uuid = find<ByUuid>(library_, "nvmlDeviceGetHandleByUUID");
  if (start == nullptr || by_uuid == nullptr || start() != kSuccess) return;
  if (by_uuid(identity(device).c_str(), &device_) != kSuccess) device_ = nullptr;
}

EnergyMeter::~EnergyMeter() {
  if (library_ == nullptr) return;
  if (auto* const stop = find<Plain>(library_, "nvmlShutdown")) stop();  // nothing is left to do if it fails
  dlclose(library_);
}

std::optional<double> EnergyMeter::joules() const {
  auto* const energy = find<Energy>(library_, "nvmlDeviceGetTotalEnergyConsumption");
  unsigned long long millijoules = 0;
  if (device_ == nullptr || energy == nullptr || energy(device_, &millijoules) != kSuccess) return {};
  return static_cast<double>(millijoules) * 1e-3;
}

std::optional<double> EnergyMeter::megahertz() const {
  auto* const clock = find<Clock>(library_, "nvmlDeviceGetClockInfo");
  unsigned int now = 0;
  if (device_ == nullptr || clock == nullptr || clock(device_, kMultiprocessors, &now) != kSuccess) return {};
  return now;
}

}  // namespace annulus::bench
