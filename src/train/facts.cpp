#include "train/facts.h"
#include <dlfcn.h>
#include <link.h>
#include <algorithm>
#include <boost/version.hpp>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <string_view>

extern char** environ;

namespace annulus {
namespace {

/// A function of a library that may be loaded, asked by name: no room but its own includes a library's
/// header.
template <class Function>
Function loaded(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

std::string mpi_version() {
  const auto ask = loaded<int (*)(char*, int*)>("MPI_Get_library_version");
  if (ask == nullptr) return "";
  char text[8192] = {};
  int length = 0;
  if (ask(text, &length) != 0) return "";
  std::string version(text);
  return version.substr(0, version.find(','));
}

std::string hdf5_version() {
  const auto ask = loaded<int (*)(unsigned*, unsigned*, unsigned*)>("H5get_libversion");
  unsigned v[3] = {};
  if (ask == nullptr || ask(&v[0], &v[1], &v[2]) < 0) return "";
  return std::to_string(v[0]) + "." + std::to_string(v[1]) + "." + std::to_string(v[2]);
}

std::string blas_version() {
  const auto ask = loaded<char* (*)()>("openblas_get_config");
  return ask != nullptr ? ask() : "";
}

int collect(dl_phdr_info* info, std::size_t, void* to) {
  static_cast<std::vector<std::string>*>(to)->push_back(info->dlpi_name);
  return 0;
}

/// Of the program alone, which comes first.
int find_build_id(dl_phdr_info* info, std::size_t, void* to) {
  const auto padded = [](std::size_t n) { return (n + 3) / 4 * 4; };
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    const char* at = reinterpret_cast<const char*>(info->dlpi_addr + part.p_vaddr);
    for (const char* end = at + part.p_memsz; at + sizeof(ElfW(Nhdr)) <= end;) {
      const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
      const char* name = at + sizeof *note;
      const char* hash = name + padded(note->n_namesz);
      if (note->n_type == NT_GNU_BUILD_ID &&
          std::string_view(name, note->n_namesz) == std::string_view("GNU", 4))
        static_cast<std::string*>(to)->assign(hash, note->n_descsz);
      at = hash + padded(note->n_descsz);
    }
  }
  return 1;
}

bool starts_with(const std::string& text, const char* with) {
  return text.rfind(with, 0) == 0;
}

}  // namespace

std::string program_version() {
  return std::string("annulus ") + ANNULUS_VERSION + " (commit " + ANNULUS_COMMIT + ")";
}

std::string program_build_id() {
  std::string hash, text;
  dl_iterate_phdr(find_build_id, &hash);
  for (const char c : hash) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(c));
    text += two;
  }
  return text.empty() ? "none" : text;
}

std::vector<std::string> library_lines() {
  const std::map<std::string, std::string> versions = {{"libmpi.", mpi_version()},
                                                       {"libhdf5", hdf5_version()},
                                                       {"libopenblas", blas_version()},
                                                       {"libblas", blas_version()},
                                                       {"libboost_program_options", BOOST_LIB_VERSION}};
  const char* kNames[] = {"libmpi.", "libhdf5",  "libopenblas", "libblas.",  "libboost_program_options",
                          "libnccl", "libcudnn", "libcublasLt", "libcudart", "libcuda."};
  std::vector<std::string> objects, lines;
  dl_iterate_phdr(collect, &objects);
  for (const std::string& path : objects) {
    const std::string file = std::filesystem::path(path).filename();
    if (std::none_of(std::begin(kNames), std::end(kNames),
                     [&](const char* n) { return starts_with(file, n); }))
      continue;
    std::string version;
    for (const auto& [name, v] : versions)
      if (starts_with(file, name.c_str())) version = v;
    std::error_code error;
    const std::string real = std::filesystem::canonical(path, error);
    lines.push_back(file + (version.empty() ? "" : " " + version) + " " + (error ? path : real));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::vector<std::string> environment_lines() {
  const char* kPrefixes[] = {"NCCL_",
                             "OMPI_MCA_",
                             "PMIX_MCA_",
                             "UCX_",
                             "FI_",
                             "OMP_",
                             "OPENBLAS_",
                             "MKL_",
                             "BLIS_",
                             "HDF5_USE_FILE_LOCKING=",
                             "HDF5_PLUGIN_PATH=",
                             "CUDA_VISIBLE_DEVICES=",
                             "CUDA_DEVICE_MAX_CONNECTIONS=",
                             "CUBLAS_WORKSPACE_CONFIG=",
                             "CUDNN_",
                             "LOADEDMODULES=",
                             "SLURM_JOB_ID=",
                             "SLURM_JOB_NUM_NODES=",
                             "SLURM_NTASKS=",
                             "SLURM_STEP_NUM_TASKS=",
                             "SLURM_RESTART_COUNT="};
  std::vector<std::string> lines;
  for (char** e = environ; *e != nullptr; ++e) {
    const std::string line = *e;
    const bool wanted = std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                                    [&](const char* p) { return starts_with(line, p); });
    // What a launcher passes on its own account (job keys, addresses) says nothing about the run.
    if (wanted && line.find("OMPI_MCA_orte_") != 0 && line.find("OMPI_MCA_ess_") != 0) lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::string facts_text(Comm& world, const std::string& host, const std::string& device) {
  char date[64] = {};
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  if (gmtime_r(&now, &utc) != nullptr) std::strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S UTC", &utc);
  std::string text =
      program_version() + "\nstarted " + date + "\nranks " + std::to_string(world.size()) + "\n";
  int rank = 0;
  for (const std::string& where : world.all_gather(host + ": " + device))
    text += "rank " + std::to_string(rank++) + " on " + where + "\n";
  for (const std::string& line : library_lines()) text += "library " + line + "\n";
  for (const std::string& line : environment_lines()) text += "environment " + line + "\n";
  return text;
}

}  // namespace annulus
