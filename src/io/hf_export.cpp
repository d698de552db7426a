#include "io/hf_export.h"
#include <sys/stat.h>
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include "io/elements.h"
#include "io/h5_file.h"
#include "io/safetensors.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

constexpr int kMostFolders = 8;  // depth of folders that are copied

struct Shard {
  std::string file;
  std::string header;
  std::vector<SafeTensor> tensors;
  std::int64_t bytes = 0;
};

std::vector<Shard> plan_shards(const ExportRequest& r) {
  std::vector<Shard> shards(1);
  for (const StoredTensor& t : r.tensors) {
    SafeTensor s{.name = t.name, .shape = t.shape};
    need(parse_stored(t.dtype, &s.type), "export of " + t.name + " as " + t.dtype);
    const std::int64_t count = shape_size(t.shape);
    need(count >= 0, "export of " + t.name + ": bad shape");
    s.bytes = count * bytes_of(s.type);
    if (!shards.back().tensors.empty() && shards.back().bytes + s.bytes > r.shard_bytes)
      shards.emplace_back();
    shards.back().bytes += s.bytes;
    shards.back().tensors.push_back(std::move(s));
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    char number[64] = "";
    if (shards.size() > 1 &&
        std::snprintf(number, sizeof number, "-%05zu-of-%05zu", i + 1, shards.size()) < 0)
      fail("snprintf", "shard name");
    shards[i].file = r.weights_name + number + ".safetensors";
    shards[i].header = make_safetensors_header(shards[i].tensors);
    shards[i].bytes += static_cast<std::int64_t>(shards[i].header.size());
  }
  return shards;
}

/// Weights in any format, and their indexes: the folder gets its own.
bool holds_weights(const std::string& name) {
  constexpr std::array<std::string_view, 12> endings = {".safetensors", ".safetensors.index.json",
                                                        ".bin",         ".bin.index.json",
                                                        ".pt",          ".pth",
                                                        ".ckpt",        ".gguf",
                                                        ".h5",          ".msgpack",
                                                        ".onnx",        ".partial"};
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view e) { return name.ends_with(e); });
}

void write_file(const std::string& path, const std::string& text) {
  const File file = File::create(path);
  file.write(0, static_cast<std::int64_t>(text.size()), text.data());
  file.sync();
}

/// Copies contents: a link to a file becomes a file, links to folders and hidden folders are left out.
void copy_files(const fs::path& from, const fs::path& to, int depth) {
  std::vector<char> buffer(std::size_t{1} << 20);
  for (const fs::directory_entry& e : fs::directory_iterator(from)) {
    const std::string name = e.path().filename().string();
    if (e.is_directory()) {
      if (e.is_symlink() || name.front() == '.' || depth == kMostFolders) continue;
      fs::create_directory(to / name);
      copy_files(e.path(), to / name, depth + 1);
      sync_folder((to / name).string());
    } else if (e.is_regular_file() && !holds_weights(name)) {
      const File in = File::open_for_reading(e.path().string());
      const File out = File::create((to / name).string());
      const std::int64_t size = in.size();
      for (std::int64_t at = 0; at < size;) {
        const std::int64_t n = std::min(static_cast<std::int64_t>(buffer.size()), size - at);
        in.read(at, n, buffer.data());
        out.write(at, n, buffer.data());
        at += n;
      }
      out.sync();
    }
  }
}

/// The folder part of the work that one rank does, with the library's errors as sentences.
template <class Work>
void on_files(const std::string& folder, const Work& work) {
  try {
    work();
  } catch (const fs::filesystem_error& e) {
    system_error("write the folder", folder, e.code().value());
  }
}

void check_folder(const ExportRequest& r, const std::string& folder) {
  if (!r.source_folder.empty()) {
    const std::string source = fs::canonical(r.source_folder).string() + "/";
    if ((fs::weakly_canonical(folder).string() + "/").starts_with(source))
      environment_error("export to " + folder + " would write into the folder it comes from, " +
                        r.source_folder + "; give another folder");
  }
  if (fs::exists(folder) && !(fs::is_directory(folder) && fs::is_empty(folder)))
    environment_error("cannot export to " + folder +
                      ": it exists and is not empty; remove it or give another folder");
}

void prepare_folder(const ExportRequest& r, const std::string& partial, const std::vector<Shard>& shards) {
  fs::remove_all(partial);
  fs::create_directories(partial);
  if (!r.source_folder.empty()) copy_files(r.source_folder, partial, 0);
  if (!r.config_json.empty()) write_file(partial + "/" + r.config_name, r.config_json);
  nlohmann::json map = nlohmann::json::object();
  std::int64_t total = 0;
  for (const Shard& s : shards) {
    const File file = File::create(partial + "/" + s.file);
    file.reserve(s.bytes);
    file.write(0, static_cast<std::int64_t>(s.header.size()), s.header.data());
    file.sync();
    for (const SafeTensor& t : s.tensors) {
      map[t.name] = s.file;
      total += t.bytes;
    }
  }
  if (shards.size() > 1)
    write_file(partial + "/" + r.weights_name + ".safetensors.index.json",
               nlohmann::json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(2) + "\n");
}

using ReadRange = std::function<void(const std::string&, std::int64_t, std::int64_t, const Tensor&)>;

void write_tensors(Comm& world, const std::string& partial, const std::vector<Shard>& shards,
                   const ReadRange& read) {
  std::vector<std::int64_t> sizes;
  std::vector<std::pair<std::size_t, std::size_t>> places;  // shard, tensor in it
  for (std::size_t s = 0; s < shards.size(); ++s)
    for (std::size_t t = 0; t < shards[s].tensors.size(); ++t) {
      sizes.push_back(shards[s].tensors[t].bytes);
      places.emplace_back(s, t);
    }
  std::vector<float> wide(
      static_cast<std::size_t>(kDigestBlock / 2));  // a block of F16 is twice as long in f32
  std::vector<std::uint16_t> halves(wide.size());
  std::map<std::size_t, File> files;
  for_my_blocks(sizes, world.rank(), world.size(), [&](std::size_t i, std::int64_t at, std::int64_t bytes) {
    const auto [s, k] = places[i];
    const SafeTensor& t = shards[s].tensors[k];
    if (!files.contains(s)) files.emplace(s, File::open_for_writing(partial + "/" + shards[s].file));
    const std::int64_t width = bytes_of(t.type), count = bytes / width;
    const DType type = t.type == Stored::BF16 ? DType::bf16 : DType::f32;
    read(t.name, at / width, count, make_tensor("export", wide.data(), type, {count}));
    const void* data = wide.data();
    if (t.type == Stored::F16) {
      std::transform(wide.begin(), wide.begin() + count, halves.begin(), float_to_half);
      data = halves.data();
    }
    files.at(s).write(t.offset + at, bytes, data);
  });
  for (const auto& [s, file] : files) file.sync();
}

}  // namespace

void export_hf(Comm& world, const ExportRequest& r, const ReadRange& read) {
  std::string folder = r.folder;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  const std::string partial = folder + ".partial";
  const std::vector<Shard> shards = plan_shards(r);
  const auto on_rank_0 = [&](const std::function<void()>& work) {
    agreed(world, "export", [&] {
      if (world.rank() == 0) on_files(folder, work);
    });
  };
  need(!r.config_json.empty() || !r.source_folder.empty(), "export without a configuration");
  on_rank_0([&] { check_folder(r, folder); });
  try {
    on_rank_0([&] { prepare_folder(r, partial, shards); });
    agreed(world, "export", [&] { write_tensors(world, partial, shards, read); });
    on_rank_0([&] {
      sync_folder(partial);
      rename_durably(partial, folder);
    });
  } catch (...) {
    std::error_code none;
    if (world.rank() == 0) fs::remove_all(partial, none);
    throw;
  }
}

}  // namespace annulus
