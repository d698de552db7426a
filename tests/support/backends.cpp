#include "support/backends.h"
#include <vector>

namespace annulus::test {

Backend& cpu() {
  static const std::unique_ptr<Backend> backend = make_cpu_backend(1);
  return *backend;
}

std::span<const NamedBackend> backends() {
  static const std::vector<NamedBackend> all{{"cpu", &cpu()}};
  return all;
}

}  // namespace annulus::test
