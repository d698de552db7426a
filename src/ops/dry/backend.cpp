#include "ops/dry/backend.h"

namespace annulus {
namespace {

constexpr double kGiga = 1e9;

}  // namespace

/// Of the device that the rates describe, before a run has allocated anything.
std::int64_t DryBackend::device_used_bytes() const {
  return rates_ == nullptr ? 0 : static_cast<std::int64_t>(rates_->number("start_gb") * kGiga);
}

std::int64_t DryBackend::device_free_bytes() const {
  return rates_ == nullptr
             ? 0
             : static_cast<std::int64_t>((rates_->number("device_gb") - rates_->number("start_gb")) * kGiga);
}

double DryBackend::peak_flops() const {
  return rates_ == nullptr ? 0 : rates_->number("peak_tflops") * 1e12;
}

std::unique_ptr<Backend> make_dry_backend(Place place, const Ops* sizes) {
  return std::make_unique<DryBackend>(place, sizes, nullptr);
}

}  // namespace annulus
