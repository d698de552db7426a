#include "core/cuda_memory.h"

#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include "core/check.cuh"

namespace annulus::cuda {
namespace {

constexpr std::int64_t kSmallest = 256;  // so that an empty tensor has an address of its own

/// One rank may run out alone, so the error is not one of all ranks.
[[noreturn]] void out_of_memory(const std::string& sentence) {
  static_cast<void>(cudaGetLastError());
  throw Error(Exit::environment, "rank " + std::to_string(g_rank_for_messages) + ": " + sentence, false);
}

}  // namespace

std::string in_gb(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f GB", static_cast<double>(bytes) * 1e-9);
  return text;
}

void* DeviceMemory::allocate(std::int64_t bytes, const char* what) {
  void* data = nullptr;
  const cudaError_t code = cudaMalloc(&data, static_cast<std::size_t>(std::max(bytes, kSmallest)));
  if (code == cudaErrorMemoryAllocation) {
    std::size_t free = 0, total = 0;
    cudaDeviceProp device{};
    int index = 0;
    cu(cudaGetDevice(&index), "cudaGetDevice");
    cu(cudaGetDeviceProperties(&device, index), "cudaGetDeviceProperties");
    cu(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    out_of_memory(in_gb(bytes) + " for " + what + " do not fit on GPU " + std::to_string(index) + " (" +
                  device.name + "), where " + in_gb(static_cast<std::int64_t>(free)) + " of " +
                  in_gb(static_cast<std::int64_t>(total)) +
                  " are free: end what else uses the GPU, use more ranks, or see what `annulus plan` says of "
                  "data.sequence, memory.offload and optimizer.state");
  }
  cu(code, std::string("cudaMalloc for ") + what);
  return data;
}

void DeviceMemory::release(void* data) noexcept {
  const cudaError_t code = cudaFree(data);
  if (code != cudaSuccess && code != cudaErrorCudartUnloading)
    std::fprintf(stderr, "warning: device memory was not given back: %s\n", cudaGetErrorString(code));
}

void* PinnedMemory::allocate(std::int64_t bytes, const char* what) {
  void* data = nullptr;
  const cudaError_t code =
      cudaHostAlloc(&data, static_cast<std::size_t>(std::max(bytes, kSmallest)), cudaHostAllocPortable);
  if (code == cudaErrorMemoryAllocation) {
    const std::int64_t page = sysconf(_SC_PAGESIZE);
    out_of_memory(
        in_gb(bytes) + " of pinned host memory for " + what + " are not to be had: " +
        in_gb(sysconf(_SC_AVPHYS_PAGES) * page) + " of the node's " + in_gb(sysconf(_SC_PHYS_PAGES) * page) +
        " are free, and the job's own limit may be lower: ask Slurm for more (--mem=0), raise `ulimit -l`, "
        "or set memory.offload=none");
  }
  cu(code, std::string("cudaHostAlloc for ") + what);
  return data;
}

void PinnedMemory::release(void* data) noexcept {
  const cudaError_t code = cudaFreeHost(data);
  if (code != cudaSuccess && code != cudaErrorCudartUnloading)
    std::fprintf(stderr, "warning: pinned memory was not given back: %s\n", cudaGetErrorString(code));
}

}  // namespace annulus::cuda
