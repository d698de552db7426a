#include "backend/device.h"

#include <cublasLt.h>
#include <cudnn.h>
#include <nccl.h>
#include <cstdio>
#include "core/check.cuh"
#include "core/libraries.h"

namespace annulus::cuda {
namespace {

constexpr int kOldest = 8;  // compute capability, major

std::string dotted(int major, int minor, int patch = -1) {
  std::string text = std::to_string(major);
  text += '.';
  text += std::to_string(minor);
  if (patch >= 0) text += '.' + std::to_string(patch);
  return text;
}

std::string uuid_of(const cudaDeviceProp& device) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(device.uuid.bytes[i]));
    text += two;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

/// The address of a library's function, to ask the linker which file it came from.
template <class Function>
std::string path_of(Function* function) {
  return library_of(reinterpret_cast<const void*>(function));
}

/// Devices this process may use; 0 with a reason when CUDA does not start.
int count_devices(std::string& reason) {
  int devices = 0, driver = 0, runtime = 0;
  const cudaError_t code = cudaGetDeviceCount(&devices);
  if (code == cudaSuccess && devices > 0) return devices;
  static_cast<void>(cudaGetLastError());
  const bool versions =
      cudaDriverGetVersion(&driver) == cudaSuccess && cudaRuntimeGetVersion(&runtime) == cudaSuccess;
  if (versions && driver == 0) {
    reason = "there is no CUDA driver on this node: run on a GPU node, or set device.kind=cpu";
  } else if (code == cudaErrorInsufficientDriver) {
    reason = "the driver supports CUDA " + dotted(driver / 1000, driver % 1000 / 10) +
             " and this program needs " + dotted(runtime / 1000, 0) +
             " or later: update the driver, or build with an older toolkit";
  } else if (code == cudaSuccess || code == cudaErrorNoDevice) {
    reason =
        "no GPU is visible to this process: ask Slurm for one (--gpus-per-node), and look at "
        "CUDA_VISIBLE_DEVICES";
  } else {
    reason = std::string("CUDA does not start: ") + cudaGetErrorString(code);
  }
  return 0;
}

}  // namespace

double peak_flops(const std::string& name) {
  struct Sheet {
    const char* part;  // of the name that the driver gives; the first that fits counts
    double flops;
  };
  constexpr Sheet sheets[] = {
      {"GB200", 2500e12},    {"B200", 2250e12}, {"H200 NVL", 836e12}, {"H200", 989e12}, {"H100 NVL", 836e12},
      {"H100 PCIe", 756e12}, {"H100", 989e12},  {"H20", 148e12},      {"A100", 312e12}, {"L40S", 362e12}};
  for (const Sheet& sheet : sheets)
    if (name.find(sheet.part) != std::string::npos) return sheet.flops;
  return 0;
}

Device take_device(const CudaOptions& options) {
  std::string reason;
  const int devices = count_devices(reason);
  if (devices == 0) environment_error(reason);
  // One visible device may be each rank's own; whether it is shows when groups are made.
  if (devices > 1 && options.local_size > devices && !options.share)
    environment_error(std::to_string(options.local_size) + " ranks on this node have " +
                      std::to_string(devices) +
                      " GPUs: start one rank per GPU, or set device.share=true for a test");
  Device device{.index = options.local_rank % devices, .name = {}, .uuid = {}, .idle = {}};
  if (devices > options.local_size) {
    const std::string all = std::to_string(devices);
    device.idle = "; of " + all + " GPUs here " + std::to_string(options.local_size) +
                  (options.local_size == 1 ? " is" : " are") + " used: mpirun -n " + all + " (srun -n " +
                  all + ") and parallel.context=" + all + " use all";
  }
  cudaDeviceProp properties{};
  cu(cudaSetDevice(device.index), "cudaSetDevice");
  cu(cudaGetDeviceProperties(&properties, device.index), "cudaGetDeviceProperties");
  device.name = properties.name;
  device.uuid = uuid_of(properties);
  if (properties.major < kOldest)
    environment_error("GPU " + std::to_string(device.index) + " (" + device.name +
                      ") has compute capability " + dotted(properties.major, properties.minor) +
                      ", and 8.0 or later is needed: set device.kind=cpu");
  return device;
}

std::string describe_libraries() {
  int driver = 0, runtime = 0, collectives = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = 0;
  if (ncclGetVersion(&collectives) != ncclSuccess) collectives = 0;
  const int blas = static_cast<int>(cublasLtGetVersion()), dnn = static_cast<int>(cudnnGetVersion());
  return "CUDA driver " + (driver == 0 ? std::string("none") : dotted(driver / 1000, driver % 1000 / 10)) +
         ", runtime " + dotted(runtime / 1000, runtime % 1000 / 10) + "\ncuBLASLt " +
         dotted(blas / 10000, blas / 100 % 100, blas % 100) + " " + path_of(&cublasLtGetVersion) +
         "\ncuDNN " + dotted(dnn / 10000, dnn / 100 % 100, dnn % 100) + " " + path_of(&cudnnGetVersion) +
         "\nNCCL " + dotted(collectives / 10000, collectives / 100 % 100, collectives % 100) + " " +
         path_of(&ncclGetVersion) + "\n";
}

CudaProbe probe() {
  CudaProbe found;
  found.report = describe_libraries();
  found.devices = count_devices(found.missing);
  for (int i = 0; i < found.devices; ++i) {
    cudaDeviceProp device{};
    if (cudaGetDeviceProperties(&device, i) != cudaSuccess) continue;
    found.report += "GPU " + std::to_string(i) + ": " + device.name + ", " + uuid_of(device) +
                    ", compute capability " + dotted(device.major, device.minor) + "\n";
  }
  return found;
}

}  // namespace annulus::cuda
