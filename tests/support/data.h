// Where files that tests read lie.
#pragma once
#include <filesystem>
#include <string>

namespace annulus::test {

/// A file or folder of the source tree: in a bundle it lies under ../share/annulus beside the test program,
/// which then needs no source tree.
inline std::string test_data(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path bundled =
      fs::read_symlink("/proc/self/exe").parent_path() / ".." / "share" / "annulus" / path;
  return fs::exists(bundled) ? bundled.lexically_normal().string()
                             : std::string(ANNULUS_SOURCE_DIR) + "/" + path;
}

}  // namespace annulus::test
