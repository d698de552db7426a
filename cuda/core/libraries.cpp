#include "core/libraries.h"

#include <dlfcn.h>
#include <link.h>
#include <filesystem>
#include "core/check.h"

namespace annulus::cuda {
namespace fs = std::filesystem;

std::vector<std::string> loaded_libraries(const std::string& prefix) {
  struct Search {
    std::string prefix;
    std::vector<std::string> found;
  } search{prefix, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& s = *static_cast<Search*>(data);
        const fs::path path = info->dlpi_name;
        if (path.filename().string().starts_with(s.prefix)) s.found.push_back(path.string());
        return 0;
      },
      &search);
  return search.found;
}

void need_one_folder(const std::string& prefix) {
  std::string first;
  for (const std::string& path : loaded_libraries(prefix)) {
    std::error_code none;
    const std::string folder = fs::weakly_canonical(fs::path(path).parent_path(), none).string();
    if (first.empty()) first = folder;
    if (folder != first)
      environment_error(prefix + " is loaded from " + first + " and from " + folder +
                        ": keep one of them in LD_LIBRARY_PATH and the loaded modules");
  }
}

std::string library_of(const void* symbol) {
  Dl_info info{};
  return dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "?";
}

}  // namespace annulus::cuda
