// The two functions that the program looks up in this library (ops/cuda_plugin.h has their types).
#pragma once
#include "ops/cuda_plugin.h"

extern "C" {
/// Takes the rank's device and makes a backend on it. Environment error when the device or a library is not
/// what is needed.
annulus::Backend* annulus_make_cuda_backend(const annulus::CudaOptions*);
void annulus_cuda_probe(annulus::CudaProbe*);
}
