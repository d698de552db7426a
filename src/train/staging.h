// Between shards, wherever they lie, and host memory that files are read to and written from.
#pragma once
#include <functional>
#include <vector>
#include "ops/backend.h"

namespace annulus {

/// Moves shards through a slab of pinned memory when the backend computes on a device; on a CPU a shard is
/// host memory itself and nothing is copied.
class Staging {
 public:
  explicit Staging(Backend& backend) : backend_(backend) {}
  ~Staging();
  Staging(const Staging&) = delete;

  /// Fills a contiguous vector: `produce(at, host)` writes elements [at, at + host.size()) of it.
  void fill(const Tensor& to, const std::function<void(std::int64_t at, const Tensor& host)>& produce);
  /// The vector as host memory that stays until this object ends: itself, or a copy.
  Tensor on_host(const Tensor& from);
  /// The same in f32.
  Tensor on_host_f32(const Tensor& from);

 private:
  static constexpr std::int64_t kSlab = std::int64_t{64} << 20;  // bytes
  Tensor slab(const Tensor& like, std::int64_t count);
  Backend& backend_;
  void* pinned_ = nullptr;
  std::vector<void*> copies_;
};

}  // namespace annulus
