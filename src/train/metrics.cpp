#include "train/metrics.h"
#include <sys/resource.h>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace annulus {
namespace {

using Json = nlohmann::ordered_json;

std::string clock_text(double seconds) {
  const auto s = static_cast<long long>(std::ceil(seconds));
  char text[48];
  if (s >= 3600)
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  else
    std::snprintf(text, sizeof text, "%lld:%02lld", s / 60, s % 60);
  return text;
}

}  // namespace

PeakBytes peak_bytes(Comm& world, Engine& engine) {
  rusage usage = {};
  if (getrusage(RUSAGE_SELF, &usage) != 0) fail("getrusage", "no figures of this process");
  std::int64_t bytes[3] = {engine.arena().peak_bytes(), engine.backend().device_used_bytes(),
                           std::int64_t{usage.ru_maxrss} * 1024};
  world.all_reduce(std::span<std::int64_t>(bytes), Reduce::max);
  return {bytes[0], bytes[1], bytes[2]};
}

std::string metric_line(const StepReport& r, std::int64_t tokens_seen, int ranks, const PeakBytes& bytes,
                        double device_peak_flops, const std::string& extra) {
  const double rate = r.flops / r.seconds / ranks;
  Json j;
  j["step"] = r.step;
  j["loss"] = r.loss;
  j["grad_norm"] = r.grad_norm;
  j["lr"] = r.lr;
  j["accuracy"] = r.accuracy;
  j["entropy"] = r.entropy;
  j["tokens"] = tokens_seen;
  j["targets"] = r.targets;
  j["epoch"] = r.epoch;
  j["step_seconds"] = r.seconds;
  j["tokens_per_second"] = static_cast<double>(r.tokens) / r.seconds;
  j["model_tflops"] = rate * 1e-12;
  j["mfu"] = device_peak_flops > 0 ? Json(rate / device_peak_flops) : Json(nullptr);
  j["device_peak_bytes"] = bytes.device_peak;
  j["device_used_bytes"] = bytes.device_used;
  j["host_peak_bytes"] = bytes.host_peak;
  if (r.experts) {
    j["aux_loss"] = r.aux_loss;
    j["expert_load_max"] = r.expert_load_max;
  }
  if (!extra.empty()) j.update(Json::parse(extra));
  return j.dump();
}

std::string readable_line(const StepReport& r, std::int64_t total, double eta_seconds) {
  char text[256];
  std::snprintf(text, sizeof text,
                "step %lld/%lld  loss %.4f  norm %.3f  lr %.3g  %.3f s  %.0f tok/s  ETA %s",
                static_cast<long long>(r.step), static_cast<long long>(total), r.loss, r.grad_norm, r.lr,
                r.seconds, static_cast<double>(r.tokens) / r.seconds, clock_text(eta_seconds).c_str());
  return text;
}

}  // namespace annulus
