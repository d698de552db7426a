#include "rates_file.h"
#include <algorithm>
#include <cstdio>
#include "train/facts.h"

namespace annulus::bench {
namespace {

constexpr double kGiga = 1e-9, kTera = 1e-12;

constexpr const char* kNotMeasured =
    "# Not measured by one device: what a rank sends to its node's others and to other nodes, the start of "
    "a\n"
    "# transfer, a call of the host. Figures of an NVLink node with a 400 Gb/s port a GPU.\n"
    "ranks_per_node 8\nlink_gbs 350\nnetwork_gbs 50\nlatency_us 20\nlaunch_us 4\n"
    "tflops.matmul_f32 50\n\n";

std::string line(const char* format, auto... values) {
  char text[160];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

/// What the library wants of a call beyond the log-sum-exp, an element of q and k alike.
double backward_scratch(Backend& b, const Sizes& s) {
  AttentionBwd a;
  a.q = a.dq = make_tensor("q", nullptr, DType::bf16, {s.N, s.H, s.D}, b.memory().place());
  a.k = a.v = a.dk = a.dv = make_tensor("k", nullptr, DType::bf16, {s.N, s.G, s.D}, b.memory().place());
  const auto rows = static_cast<double>(s.N) * static_cast<double>(s.H);
  const double bytes = static_cast<double>(b.ops().attention_bwd_bytes(a)) - 4 * rows;
  return std::max(0.0, bytes) / (2 * rows * static_cast<double>(s.D));
}

}  // namespace

RatesFile::RatesFile(Backend& backend)
    : backend_(backend),
      total_gb_(static_cast<double>(backend.device_used_bytes() + backend.device_free_bytes()) * kGiga),
      start_gb_(static_cast<double>(backend.device_used_bytes()) * kGiga) {}

void RatesFile::add(const Case& c, const Timing& t) {
  if (c.kind == Kind::memory) memory_.push_back({"of_copy." + c.name, 0, c.amount / t.median});
  if (c.kind == Kind::attention) attention_.push_back({"tflops." + c.rate, c.rate_size, c.amount / t.median});
  if (c.kind != Kind::matmul) return;
  Sum& sum = c.name.ends_with("_f32") ? into_f32_ : matmul_;
  sum.amount += c.amount;
  sum.seconds += t.median;
}

void RatesFile::write(const std::string& path, const std::string& command, const Limits& limits,
                      const Sizes& sizes) const {
  if (memory_.empty() || attention_.empty() || matmul_.seconds == 0 || into_f32_.seconds == 0)
    usage_error("--rates needs every operation; leave --only out");
  const std::string device = backend_.describe();
  const double used = static_cast<double>(backend_.device_used_bytes()) * kGiga,
               scratch = backward_scratch(backend_, sizes);
  std::string text =
      "# What `annulus plan` knows of a machine. Lines: `key value`, or `key size value`.\n# " +
      program_version() + ": " + command + "\n# " + device + "\n";
  text += "device " + device.substr(0, device.find(',')) + "\n";
  text += line("peak_tflops %.0f   # the data sheet\n", backend_.peak_flops() * kTera);
  text += line("device_gb %.2f\nstart_gb %.2f\nlater_gb %.2f\n\n", total_gb_, start_gb_,
               std::max(0.0, used - start_gb_));
  text += line("copy_gbs %.4g\npinned_gbs %.4g\npinned_both_gbs %.4g\n\n", limits.copy.rate() * kGiga,
               std::min(limits.to_device.rate(), limits.to_host.rate()) * kGiga, limits.both.rate() * kGiga);
  text += kNotMeasured;
  text += line("tflops.matmul %.4g\ntflops.matmul_into_f32 %.4g\n", matmul_.amount / matmul_.seconds * kTera,
               into_f32_.amount / into_f32_.seconds * kTera);
  for (const Line& l : attention_) text += line("%s %.0f %.4g\n", l.key.c_str(), l.size, l.rate * kTera);
  text +=
      line("\nscratch.attention_bwd.q %.3f\nscratch.attention_bwd.k %.3f\nscratch.attention_bwd.row 0\n\n",
           scratch, scratch);
  for (const Line& l : memory_) text += line("%s %.4g\n", l.key.c_str(), l.rate / limits.copy.rate());

  std::FILE* file = std::fopen(path.c_str(), "w");
  const bool whole = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if ((file != nullptr && std::fclose(file) != 0) || !whole)
    environment_error("cannot write " + path + "; give --rates a file that can be written");
}

}  // namespace annulus::bench
