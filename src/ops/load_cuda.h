// Finds and loads the CUDA backend.
#pragma once
#include <memory>
#include <string>
#include "ops/cuda_plugin.h"

namespace annulus {

/// Loads the shared library from the program's folder or ../lib beside it and makes the backend. Environment
/// error that says what is missing when it cannot.
std::unique_ptr<Backend> load_cuda_backend(const CudaOptions&);

/// What `annulus info` says about CUDA, and what device.kind=auto looks at: a backend can be made when
/// `missing` is empty.
CudaProbe cuda_probe();
/// The probe as text: the report, then what is missing.
std::string cuda_status();

}  // namespace annulus
