#include "core/memory.h"
#include <atomic>
#include <cstdlib>
#include <string>

namespace annulus {
namespace {

constexpr std::int64_t kAlign = 256;
std::int64_t round_up(std::int64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

class HostMemory : public Memory {
 public:
  Place place() const override { return Place::host; }
  void* allocate(std::int64_t bytes, const char* what) override {
    const std::int64_t n = round_up(bytes > 0 ? bytes : 1);
    void* p = std::aligned_alloc(static_cast<std::size_t>(kAlign), static_cast<std::size_t>(n));
    if (p == nullptr)
      throw Error(Exit::environment,
                  "rank " + std::to_string(g_rank_for_messages) + ": no host memory for " + what + " (" +
                      std::to_string(static_cast<double>(n) * 1e-9) +
                      " GB): use more ranks, shorter rows or a larger node",
                  false);
    return p;
  }
  void release(void* data) noexcept override { std::free(data); }
};

/// Addresses from a range that no process maps. They never repeat, so a use after release is visible.
class DryMemory : public Memory {
 public:
  explicit DryMemory(Place place) : place_(place) {}
  Place place() const override { return place_; }
  bool real() const override { return false; }
  void* allocate(std::int64_t bytes, const char*) override {
    const std::int64_t n = round_up(bytes > 0 ? bytes : 1);
    return reinterpret_cast<void*>(next_.fetch_add(static_cast<std::uintptr_t>(n)));
  }
  void release(void*) noexcept override {}

 private:
  Place place_;
  std::atomic<std::uintptr_t> next_{std::uintptr_t{1} << 60};
};

}  // namespace

Memory& host_memory() {
  static HostMemory memory;
  return memory;
}

Memory& dry_memory(Place place) {
  static DryMemory host(Place::host), device(Place::device);
  return place == Place::host ? host : device;
}

}  // namespace annulus
