#include "support/backends.h"
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>
#include "ops/load_cuda.h"
#include "support/shared_groups.h"
#include "support/world.h"

namespace annulus::test {

Backend& cpu() {
  static const std::unique_ptr<Backend> backend = make_cpu_backend(1);
  return *backend;
}

Backend* cuda() {
  // Never destroyed: the driver may be gone by then.
  static Backend* const backend = [] {
    if (!cuda_probe().missing.empty()) return static_cast<Backend*>(nullptr);
    CudaOptions options;
    options.rank = session().rank();
    options.local_rank = session().local_rank();
    options.local_size = session().local_size();
    options.share = true;
    options.stall_seconds = 120;
    options.abort = [](Exit code) { session().abort(code); };
    return load_cuda_backend(options).release();
  }();
  return backend;
}

Backend& tested() {
  const char* device = std::getenv("ANNULUS_TEST_DEVICE");
  if (device == nullptr || std::string(device) != "cuda") return cpu();
  if (cuda() == nullptr) throw std::runtime_error("ANNULUS_TEST_DEVICE=cuda, but " + cuda_probe().missing);
  static Backend* const shared = new SharedGroups(*cuda(), session().rank());  // never destroyed, as cuda()
  return *shared;
}

std::span<const NamedBackend> backends() {
  static const std::vector<NamedBackend> all = [] {
    std::vector<NamedBackend> found{{"cpu", &cpu()}};
    if (cuda() != nullptr) found.push_back({"cuda", cuda()});
    return found;
  }();
  return all;
}

boost::test_tools::assertion_result needs_gpu(boost::unit_test::test_unit_id) {
  boost::test_tools::assertion_result answer(cuda() != nullptr);
  if (!answer) answer.message() << "no GPU: " << cuda_probe().missing;
  return answer;
}

}  // namespace annulus::test
