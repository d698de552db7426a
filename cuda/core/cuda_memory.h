// Device memory and pinned host memory.
#pragma once
#include <string>
#include "core/memory.h"

namespace annulus::cuda {

/// cudaMalloc. When it fails: an environment error of this rank with what was wanted, free and there.
class DeviceMemory final : public Memory {
 public:
  Place place() const override { return Place::device; }
  void* allocate(std::int64_t bytes, const char* what) override;
  void release(void* data) noexcept override;
};

/// cudaHostAlloc: host memory that the device's copy engines reach.
class PinnedMemory final : public Memory {
 public:
  Place place() const override { return Place::host; }
  void* allocate(std::int64_t bytes, const char* what) override;
  void release(void* data) noexcept override;
};

/// A piece of device memory with an owner.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceMemory& memory, std::int64_t bytes, const char* what)
      : memory_(&memory), data_(memory.allocate(bytes, what)), bytes_(bytes) {}
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  DeviceBuffer(DeviceBuffer&& from) noexcept { swap(from); }
  DeviceBuffer& operator=(DeviceBuffer&& from) noexcept {
    swap(from);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_ != nullptr) memory_->release(data_);
  }
  void* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  void swap(DeviceBuffer& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  DeviceMemory* memory_ = nullptr;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// "12.35 GB", GB = 10^9 bytes.
std::string in_gb(std::int64_t bytes);

}  // namespace annulus::cuda
