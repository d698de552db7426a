#include "io/checkpoint.h"
#include <algorithm>
#include <charconv>
#include <filesystem>
#include "io/elements.h"
#include "io/h5_file.h"
#include "io/h5_save.h"

namespace annulus {
namespace {

constexpr std::string_view kPrefix = "step-", kSuffix = ".h5", kPartial = ".h5.partial";

class StateReader : public H5Reader {
 public:
  explicit StateReader(const std::string& path) : index_(open_h5_index(path)) {
    if (index_.kind != kStateFile)
      input_error(path + " is a token file; here weights or a checkpoint are needed");
    for (const H5Dataset& d : index_.datasets) specs_.push_back({d.name, d.shape, type_of(d)});
  }
  const std::map<std::string, std::string>& facts() const override { return index_.facts; }
  const std::vector<DatasetSpec>& datasets() const override { return specs_; }
  bool has(const std::string& name) const override { return index_.find(name) != nullptr; }

  void read(const std::string& name, std::int64_t from, std::int64_t count, const Tensor& to) override {
    const H5Dataset& d = index_.at(name);
    const std::int64_t width = bytes_of(d.kind);
    need(from >= 0 && count >= 0 && from <= d.bytes / width - count, "elements beyond the end of " + name);
    if (d.kind == H5Kind::f32 || d.kind == H5Kind::bf16) {
      read_elements(index_.file, d.offset + from * width, d.kind == H5Kind::f32 ? Stored::F32 : Stored::BF16,
                    count, to);
      return;
    }
    need(h5_kind(to.dtype) == d.kind && to.contiguous() && to.size() >= count,
         name + " can only be read as its own type");
    index_.file.read(d.offset + from * width, count * width, to.data);
  }

  void verify(Comm& world) override { verify_h5(world, index_); }

 private:
  DType type_of(const H5Dataset& d) const {
    for (DType t : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8})
      if (h5_kind(t) == d.kind) return t;
    input_error(index_.path + ": " + d.name + " has a type that weights and checkpoints do not hold");
  }

  H5Index index_;
  std::vector<DatasetSpec> specs_;
};

/// The step of a name "step-NNNNNN" + suffix, or -1.
std::int64_t step_of(std::string_view name, std::string_view suffix) {
  if (!name.starts_with(kPrefix) || !name.ends_with(suffix)) return -1;
  const std::string_view digits = name.substr(kPrefix.size(), name.size() - kPrefix.size() - suffix.size());
  std::int64_t step = -1;
  const auto got = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  const bool good = digits.size() >= 6 && got.ec == std::errc{} && got.ptr == digits.data() + digits.size();
  return good ? step : -1;
}

std::vector<CheckpointFile> list_files(const std::string& folder, std::string_view suffix) {
  std::vector<CheckpointFile> files;
  std::error_code code;
  for (std::filesystem::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const std::int64_t step = step_of(at->path().filename().string(), suffix);
    std::error_code none;
    if (step >= 0 && at->is_regular_file(none)) files.push_back({at->path().string(), step});
  }
  if (code && code != std::errc::no_such_file_or_directory) system_error("list", folder, code.value());
  std::sort(files.begin(), files.end(), [](const CheckpointFile& a, const CheckpointFile& b) {
    return a.step != b.step ? a.step > b.step : a.path < b.path;
  });
  return files;
}

/// Rank 0's listing, so that all ranks try the same files in the same order.
std::vector<std::string> shared_list(Comm& world, const std::string& folder, std::string_view suffix) {
  std::string joined;
  agreed(world, "list checkpoints", [&] {
    if (world.rank() != 0) return;
    for (const CheckpointFile& f : list_files(folder, suffix)) joined += f.path + '\n';
  });
  world.broadcast(joined, 0);
  std::vector<std::string> paths;
  for (std::size_t at = 0; at < joined.size();) {
    const std::size_t end = joined.find('\n', at);
    paths.push_back(joined.substr(at, end - at));
    at = end + 1;
  }
  return paths;
}

/// The file, opened by all ranks and verified, or null with the reason.
std::unique_ptr<H5Reader> try_checkpoint(Comm& world, const std::string& path, std::string* why) {
  try {
    std::unique_ptr<H5Reader> reader;
    agreed(world, "open checkpoint", [&] { reader = open_h5(path); });
    reader->verify(world);
    return reader;
  } catch (const Error& e) {
    // What is wrong with the file's content makes it no checkpoint; a machine's trouble is not the file's.
    if (e.code != Exit::input) throw;
    *why = e.what();
    return nullptr;
  }
}

bool opens(const std::string& path) {
  try {
    open_h5(path);
    return true;
  } catch (const Error& e) {
    if (e.code != Exit::input) throw;
    return false;
  }
}

void remove_file(const std::string& path) {
  std::error_code code;
  std::filesystem::remove(path, code);
  if (code) system_error("remove", path, code.value());
}

}  // namespace

std::unique_ptr<Save> begin_save(Comm& world, const SaveRequest& request) {
  H5Job job{.path = request.path,
            .kind = kStateFile,
            .specs = {},
            .parts = {},
            .facts = request.facts,
            .fail = request.fail};
  std::map<std::string, std::size_t> number;
  for (const DatasetSpec& d : request.datasets) {
    need(number.emplace(d.dataset, job.specs.size()).second, "dataset " + d.dataset + " is listed twice");
    job.specs.push_back({d.dataset, d.shape, h5_kind(d.dtype)});
  }
  for (const Piece& p : request.pieces) {
    const auto at = number.find(p.dataset);
    need(at != number.end(), "piece of " + p.dataset + ", which is not a dataset of the file");
    const H5Spec& spec = job.specs[at->second];
    need(p.data.size() == 0 ||
             (p.data.place == Place::host && p.data.contiguous() && h5_kind(p.data.dtype) == spec.kind &&
              p.from >= 0 && p.from + p.data.size() <= shape_size(spec.shape)),
         "piece of " + p.dataset + " has another type or lies outside of it");
    if (p.data.size() > 0) job.parts.push_back({at->second, p.from, p.data.size(), p.data.data, {}});
  }
  return begin_h5(world, std::move(job));
}

void save_h5(Comm& world, const SaveRequest& request) {
  const std::unique_ptr<Save> save = begin_save(world, request);
  save->write();
  save->finish();
}

std::unique_ptr<H5Reader> open_h5(const std::string& path) {
  return std::make_unique<StateReader>(path);
}

std::vector<CheckpointFile> list_checkpoints(const std::string& folder) {
  return list_files(folder, kSuffix);
}

std::unique_ptr<H5Reader> newest_checkpoint(Comm& world, const std::string& folder,
                                            const std::function<void(const std::string&)>& say,
                                            std::string* path) {
  const auto tell = [&](const std::string& line) {
    if (world.rank() == 0 && say) say(line);
  };
  for (const std::string& unfinished : shared_list(world, folder, kPartial))
    tell("passing over " + unfinished + ": the save that wrote it did not finish");
  for (const std::string& candidate : shared_list(world, folder, kSuffix)) {
    std::string why;
    if (std::unique_ptr<H5Reader> reader = try_checkpoint(world, candidate, &why)) {
      if (path != nullptr) *path = candidate;
      return reader;
    }
    tell("passing over " + candidate + ": " + why);
  }
  return nullptr;
}

void prune_checkpoints(Comm& world, const std::string& folder, std::int64_t keep) {
  const std::vector<std::string> files = shared_list(world, folder, kSuffix);
  std::string why;
  std::size_t newest = 0;
  while (newest < files.size() && try_checkpoint(world, files[newest], &why) == nullptr) ++newest;
  if (newest == files.size()) return;
  agreed(world, "remove old checkpoints", [&] {
    if (world.rank() != 0) return;
    std::int64_t kept = 1;
    for (std::size_t i = newest + 1; i < files.size(); ++i) {
      if (!opens(files[i])) continue;
      if (kept < keep)
        ++kept;
      else
        remove_file(files[i]);
    }
    const std::int64_t step = step_of(std::filesystem::path(files[newest]).filename().string(), kSuffix);
    for (const CheckpointFile& f : list_files(folder, kPartial))
      if (f.step < step) remove_file(f.path);
    sync_folder(folder);
  });
}

}  // namespace annulus
