// CUDA's return codes become errors, with the call and its place in the text.
#pragma once
#include <cuda_runtime.h>
#include "core/check.h"

namespace annulus {

inline void cu(cudaError_t code, std::string_view call,
               std::source_location at = std::source_location::current()) {
  if (code != cudaSuccess) fail(call, cudaGetErrorString(code), at);
}

/// After every <<<>>>: a bad launch names the launcher, not the next innocent call.
inline void launched(std::string_view kernel, std::source_location at = std::source_location::current()) {
  cu(cudaGetLastError(), kernel, at);
}

}  // namespace annulus
