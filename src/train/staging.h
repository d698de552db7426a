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
  /// What on_host() gives for a shard that lies in host memory: itself, or a copy as for one on a device.
  enum class Host : std::uint8_t { itself, copied };
  explicit Staging(Backend& backend, Host host = Host::itself) : backend_(backend), host_(host) {}
  ~Staging();
  Staging(const Staging&) = delete;

  /// Fills a contiguous vector: `produce(at, host)` writes elements [at, at + host.size()) of it.
  void fill(const Tensor& to, const std::function<void(std::int64_t at, const Tensor& host)>& produce);
  /// The vector as host memory that stays until rewind() or this object's end: itself, or a copy.
  Tensor on_host(const Tensor& from);
  /// The same in f32.
  Tensor on_host_f32(const Tensor& from);
  /// The copies are no longer needed. The same calls in the same order find their memory again.
  void rewind() { next_ = 0; }

 private:
  struct Copy {
    void* data;
    std::int64_t bytes;
  };
  static constexpr std::int64_t kSlab = std::int64_t{64} << 20;  // bytes
  Tensor slab(const Tensor& like, std::int64_t count);
  Tensor copy_of(const Tensor& like, DType);
  Backend& backend_;
  void* pinned_ = nullptr;
  Host host_;
  std::vector<Copy> copies_;
  std::size_t next_ = 0;  // copy to give out
};

}  // namespace annulus
