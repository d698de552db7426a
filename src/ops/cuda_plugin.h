// What passes between the program and its CUDA backend, a shared library that is loaded when a device is
// asked for. Plain C++: neither side needs the other's headers. Errors cross as exceptions.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include "ops/backend.h"

namespace annulus {

/// What computes attention: cuda/README.md.
enum class AttentionKernel : std::uint8_t { cudnn, hopper, own };

struct CudaOptions {
  int rank = 0;        // in the world, for messages
  int local_rank = 0;  // within the node: the device is local_rank % visible devices
  int local_size = 1;
  bool share = false;  // several ranks may use one device
  bool deterministic = false;
  double stall_seconds = 1800;                      // a collective that takes longer ends the job
  const std::atomic<std::int64_t>* step = nullptr;  // the step under way, for messages; outlives the backend
  std::function<void(Exit)> abort;                  // ends the whole job; called from the watchdog's thread
  std::optional<AttentionKernel> attention;         // this one or an error, to compare them; else the fastest
};

/// What this machine has and lacks. Never throws, never starts a context.
struct CudaProbe {
  int devices = 0;
  std::string report;   // lines: driver, devices, library versions and paths
  std::string missing;  // one sentence; empty when a backend can be made
};

inline constexpr const char* kCudaLibrary = "libannulus_cuda.so";
inline constexpr const char* kMakeCudaBackend = "annulus_make_cuda_backend";
inline constexpr const char* kCudaProbe = "annulus_cuda_probe";
using MakeCudaBackend = Backend*(const CudaOptions*);
using ProbeCuda = void(CudaProbe*);

}  // namespace annulus
