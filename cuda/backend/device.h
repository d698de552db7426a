// The device of this process, and the libraries it works with.
#pragma once
#include <string>
#include "ops/cuda_plugin.h"

namespace annulus::cuda {

struct Device {
  int index = 0;
  std::string name, uuid;
  std::string idle;  // where the node has more GPUs than ranks: what would use them
};

/// Dense bf16 rate of the device's data sheet, flop/s; 0 for one that is not in the list.
double peak_flops(const std::string& name);

/// Makes device local_rank % visible devices the current one. Environment error when there is none, when it
/// is too old, or when there are fewer devices than ranks on the node and none may be shared.
Device take_device(const CudaOptions&);

/// One line a library: version and path.
std::string describe_libraries();

CudaProbe probe();

}  // namespace annulus::cuda
