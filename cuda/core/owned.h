// Streams and events with an owner. Owners move, never copy; a destructor warns and never throws.
#pragma once
#include <cstdio>
#include <utility>
#include "core/check.cuh"

namespace annulus::cuda {

template <class Handle, cudaError_t (*Destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& from) noexcept : handle_(std::exchange(from.handle_, nullptr)) {}
  Owned& operator=(Owned&& from) noexcept {
    std::swap(handle_, from.handle_);
    return *this;
  }
  ~Owned() {
    // At the end of the process the driver may be gone before a static owner is.
    if (handle_ == nullptr) return;
    const cudaError_t code = Destroy(handle_);
    if (code != cudaSuccess && code != cudaErrorCudartUnloading)
      std::fprintf(stderr, "warning: a CUDA handle was not destroyed: %s\n", cudaGetErrorString(code));
  }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

using Stream = Owned<cudaStream_t, &cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, &cudaEventDestroy>;

/// An event without timing. `block`: a host thread that waits for it sleeps instead of spinning.
inline Event make_event(bool block = true) {
  cudaEvent_t event = nullptr;
  cu(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | (block ? cudaEventBlockingSync : 0u)),
     "cudaEventCreate");
  return Event(event);
}

/// Whether all that was queued before the event has run; a broken device throws.
inline bool has_passed(cudaEvent_t event) {
  const cudaError_t code = cudaEventQuery(event);
  if (code == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());  // "not yet" would else be blamed on the next launch
    return false;
  }
  cu(code, "cudaEventQuery");
  return true;
}

}  // namespace annulus::cuda
