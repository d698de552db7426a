#include "support/data.h"
#include <filesystem>

namespace annulus::test {

std::string test_data(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path bundled =
      fs::read_symlink("/proc/self/exe").parent_path() / ".." / "share" / "annulus" / path;
  return fs::exists(bundled) ? bundled.lexically_normal().string()
                             : std::string(ANNULUS_SOURCE_DIR) + "/" + path;
}

}  // namespace annulus::test
