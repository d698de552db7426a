#include "ops/load_cuda.h"

#include <dlfcn.h>
#include <filesystem>
#include <vector>

namespace annulus {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

/// Of the libraries that the backend asks for (their names come from the build).
std::string absent_libraries() {
  std::string names;
  for (const std::string& name : split(ANNULUS_CUDA_NEEDS)) {
    if (void* found = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL)) {
      dlclose(found);
    } else {
      names += (names.empty() ? "" : ", ") + name;
    }
  }
  return names;
}

struct Loaded {
  MakeCudaBackend* make = nullptr;
  ProbeCuda* probe = nullptr;
  std::string why_not;  // one sentence, when they are null
};

Loaded load() {
  std::error_code none;
  const fs::path program = fs::read_symlink("/proc/self/exe", none);
  std::string tried;
  for (const fs::path& folder : {program.parent_path(), program.parent_path() / ".." / "lib"}) {
    const fs::path file = folder / kCudaLibrary;
    tried += (tried.empty() ? "" : " nor ") + folder.lexically_normal().string();
    if (!fs::exists(file, none)) continue;
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays loaded: its code runs to the end
    if (library == nullptr) {
      const std::string reason = dlerror();
      const std::string absent = absent_libraries();
      return {.why_not = absent.empty()
                             ? "the CUDA backend does not load: " + reason
                             : "the CUDA backend does not load because the dynamic linker does not find " +
                                   absent +
                                   ": load the modules that bring them, or add their folders to "
                                   "LD_LIBRARY_PATH"};
    }
    Loaded all{reinterpret_cast<MakeCudaBackend*>(dlsym(library, kMakeCudaBackend)),
               reinterpret_cast<ProbeCuda*>(dlsym(library, kCudaProbe)),
               {}};
    if (all.make == nullptr || all.probe == nullptr) {
      return {.why_not = file.string() + " belongs to another version of annulus: install both anew"};
    }
    return all;
  }
  return {.why_not = std::string("this installation has no CUDA backend (") + kCudaLibrary +
                     " lies neither in " + tried + "): build on a machine with nvcc 12.8 or later"};
}

const Loaded& loaded() {
  static const Loaded once = load();
  return once;
}

}  // namespace

std::unique_ptr<Backend> load_cuda_backend(const CudaOptions& options) {
  if (loaded().make == nullptr) environment_error(loaded().why_not);
  return std::unique_ptr<Backend>(loaded().make(&options));
}

CudaProbe cuda_probe() {
  CudaProbe probe;
  if (loaded().probe != nullptr)
    loaded().probe(&probe);
  else
    probe.missing = loaded().why_not;
  return probe;
}

std::string cuda_status() {
  const CudaProbe probe = cuda_probe();
  std::string text = probe.report;
  if (!probe.missing.empty())
    text += (text.empty() || text.back() == '\n' ? "" : "\n") + probe.missing + "\n";
  return text;
}

}  // namespace annulus
