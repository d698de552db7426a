// A save, in the order that survives a full disk and a death at any point: create and reserve, agree, write
// at the datasets' own offsets, join digests, sync, mark as complete, close, rename.
#include "io/h5_save.h"
#include <unistd.h>
#include <zlib.h>
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <set>
#include "io/fault.h"
#include "io/h5.h"

namespace annulus {
namespace {

static_assert(std::endian::native == std::endian::little,
              "files hold little-endian numbers as they lie in memory");

/// The CRC of one piece of one digest block, as it travels to rank 0.
struct Fragment {
  std::uint32_t dataset, crc;
  std::int64_t at, bytes;
};

std::int64_t elements(const H5Spec& s) {
  std::int64_t n = 1;
  for (std::int64_t d : s.shape) n *= d;
  return n;
}

std::int64_t digest_blocks(std::int64_t bytes) {
  return (bytes + kDigestBlock - 1) / kDigestBlock;
}

std::map<std::string, std::string> facts_of_rank_0(Comm& world,
                                                   const std::map<std::string, std::string>& mine) {
  // "length key length value" each: lengths in text, so that no byte is special.
  std::string packed;
  const auto put = [&](const std::string& s) { packed += std::to_string(s.size()) + " " + s; };
  for (const auto& [key, value] : mine) {
    put(key);
    put(value);
  }
  world.broadcast(packed, 0);
  std::map<std::string, std::string> facts;
  std::size_t at = 0;
  const auto get = [&] {
    const std::size_t space = packed.find(' ', at);
    const std::size_t length = std::stoull(packed.substr(at, space - at));
    at = space + 1 + length;
    return packed.substr(space + 1, length);
  };
  while (at < packed.size()) {
    std::string key = get();
    facts[std::move(key)] = get();
  }
  return facts;
}

class H5Save : public Save {
 public:
  H5Save(Comm& world, H5Job job) : world_(world), job_(std::move(job)), partial_(job_.path + ".partial") {
    job_.facts = facts_of_rank_0(world_, job_.facts);
    check_job();
    guarded([&] {
      agreed(world_, "create", [&] { prepare(); });
      agreed(world_, "create", [&] { create_file(); });
      agreed(world_, "reserve", [&] { reserve(estimate()); });
      agreed(world_, "create", [&] { create_objects(); });
      agreed(world_, "reserve", [&] { reserve(plain_.size()); });
    });
  }

  ~H5Save() override {
    if (!done_) abandon();
  }

  void write() noexcept override {
    try {
      write_parts();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  void finish() override {
    guarded([&] {
      agreed(world_, "write", [&] {
        if (failure_) std::rethrow_exception(failure_);
        plain_.sync();
      });
      const std::vector<std::string> all = world_.all_gather(std::string(
          reinterpret_cast<const char*>(fragments_.data()), fragments_.size() * sizeof(Fragment)));
      agreed(world_, "digest", [&] {
        inject("digest");
        if (world_.rank() == 0) write_digests(all);
      });
      agreed(world_, "mark", [&] { inject("mark"); });
      agreed(world_, "mark", [&] {
        // A rank whose data had not reached the disk would have thrown above, so the mark tells the truth.
        library([&] {
          h5_set_number(file_.id(), "complete", 1);
          h5(H5Fflush(file_.id(), H5F_SCOPE_GLOBAL), "H5Fflush");
        });
      });
      agreed(world_, "close", [&] { library([&] { file_.close("H5Fclose"); }); });
      agreed(world_, "rename", [&] { inject("rename"); });
      agreed(world_, "rename", [&] {
        if (world_.rank() != 0) return;
        plain_.sync();
        rename_durably(partial_, job_.path);
      });
    });
    done_ = true;
  }

 private:
  /// Runs collective steps; when they throw (on all ranks alike), cleans up first. What one rank can fail
  /// alone has an agreed() of its own, before a library call that waits for every rank.
  template <class Work>
  void guarded(const Work& work) {
    try {
      work();
    } catch (...) {
      abandon();
      throw;
    }
  }

  /// The library's reasons become the user's sentence.
  template <class Work>
  void library(const Work& work) {
    try {
      work();
    } catch (const H5Failure& e) {
      environment_error("cannot write " + partial_ + " (" + e.what() +
                        "); see that the folder is writable and has space, and that MPI-IO works on it");
    }
  }

  void inject(std::string_view phase) { inject_fault(job_.fail, phase, world_.rank(), job_.path, total_); }

  void check_job() {
    std::uint32_t same = 0;
    for (const H5Spec& s : job_.specs) {
      need(s.name.size() > 1 && s.name.front() == '/' && s.name.back() != '/' &&
               s.name.find("//") == std::string::npos,
           "bad dataset name " + s.name);
      const std::int64_t bytes = elements(s) * bytes_of(s.kind);
      total_ += bytes + digest_blocks(bytes) * 4;
      const std::string key = s.name + " " + std::to_string(bytes) + " " + std::to_string(s.shape.size());
      same =
          static_cast<std::uint32_t>(crc32_z(same, reinterpret_cast<const Bytef*>(key.data()), key.size()));
    }
    std::int64_t both[2] = {same, -static_cast<std::int64_t>(same)};
    world_.all_reduce(both, Reduce::max);
    need(both[0] == -both[1], "ranks disagree on the datasets of " + job_.path);
    need(world_.size() == 1 || world_.mpi_handle() != nullptr,
         "a save over several ranks needs an MPI group");
  }

  void prepare() {
    inject("create");
    h5_start();
    if (world_.rank() != 0) return;
    if (std::filesystem::is_directory(job_.path))
      environment_error("cannot write " + job_.path + ": it is a folder; remove it or choose another name");
    // One plain try before the library's collective one: its errors are clear and reach no other rank's
    // calls.
    plain_ = File::create(partial_);
    plain_.reserve(estimate());
  }

  void create_file() {
    library([&] {
      const H5Plan access(H5Pcreate(H5P_FILE_ACCESS), "H5Pcreate");
      const H5Plan making(H5Pcreate(H5P_FILE_CREATE), "H5Pcreate");
      h5(H5Pset_obj_track_times(making.id(), false), "H5Pset_obj_track_times");
      h5(H5Pset_libver_bounds(access.id(), H5F_LIBVER_V18, H5F_LIBVER_V18), "H5Pset_libver_bounds");
      h5(H5Pset_file_locking(access.id(), false, true), "H5Pset_file_locking");
      if (auto* comm = static_cast<MPI_Comm*>(world_.mpi_handle()))
        h5(H5Pset_fapl_mpio(access.id(), *comm, MPI_INFO_NULL), "H5Pset_fapl_mpio");
      file_ = H5File(H5Fcreate(partial_.c_str(), H5F_ACC_TRUNC, making.id(), access.id()), "H5Fcreate");
    });
    plain_ = File::open_for_writing(partial_);
  }

  /// Everything the file will take: data, digests, and more metadata than the library makes of them.
  std::int64_t estimate() const {
    std::int64_t bytes = total_ + (std::int64_t{1} << 20);
    for (const H5Spec& s : job_.specs) bytes += 4096 + 4 * static_cast<std::int64_t>(s.name.size());
    for (const auto& [key, value] : job_.facts)
      bytes += 1024 + static_cast<std::int64_t>(key.size() + value.size());
    return bytes;
  }

  void reserve(std::int64_t bytes) {
    inject("reserve");
    if (world_.rank() == 0) plain_.reserve(bytes);
  }

  void create_objects() {
    library([&] {
      // No times of creation: the same contents are the same bytes, whoever writes them and when.
      const H5Plan links(H5Pcreate(H5P_LINK_CREATE), "H5Pcreate"),
          groups(H5Pcreate(H5P_GROUP_CREATE), "H5Pcreate");
      h5(H5Pset_char_encoding(links.id(), H5T_CSET_UTF8), "H5Pset_char_encoding");
      h5(H5Pset_obj_track_times(groups.id(), false), "H5Pset_obj_track_times");
      for (const std::string& g : group_names())
        H5Group(H5Gcreate2(file_.id(), g.c_str(), links.id(), groups.id(), H5P_DEFAULT), "H5Gcreate2 " + g);
      h5_create_number(file_.id(), "version", kH5Version);
      h5_create_number(file_.id(), "complete", 0);
      h5_write_text(file_.id(), "kind", job_.kind);
      const H5Group group(H5Gopen2(file_.id(), facts_group(job_.kind), H5P_DEFAULT), "H5Gopen2");
      for (const auto& [key, value] : job_.facts) h5_write_text(group.id(), key, value);
      std::vector<H5Set> data, digests;
      for (const H5Spec& s : job_.specs) {
        const std::int64_t blocks = digest_blocks(elements(s) * bytes_of(s.kind));
        data.push_back(create_set(s.name, s.shape, s.kind, links.id()));
        digests.push_back(blocks > 0 ? create_set("/digest" + s.name, {blocks}, H5Kind::u32, links.id())
                                     : H5Set());
      }
      // After the flush everything has its final place, and the library has nothing left to write but the
      // mark.
      h5(H5Fflush(file_.id(), H5F_SCOPE_GLOBAL), "H5Fflush");
      for (std::size_t i = 0; i < data.size(); ++i) {
        offsets_.push_back(offset_of(data[i], job_.specs[i]));
        digest_offsets_.push_back(digests[i].id() < 0 ? 0 : offset_of(digests[i], job_.specs[i]));
      }
    });
  }

  /// Of all datasets and digests and the facts; a folder sorts before what is in it.
  std::set<std::string> group_names() const {
    std::set<std::string> groups = {facts_group(job_.kind)};
    for (const H5Spec& s : job_.specs)
      for (const std::string& name : {s.name, "/digest" + s.name})
        for (std::size_t at = name.rfind('/'); at != 0 && at != std::string::npos;
             at = name.rfind('/', at - 1))
          groups.insert(name.substr(0, at));
    return groups;
  }

  H5Set create_set(const std::string& name, const std::vector<std::int64_t>& shape, H5Kind kind,
                   hid_t links) {
    const H5Plan plan(H5Pcreate(H5P_DATASET_CREATE), "H5Pcreate");
    h5(H5Pset_layout(plan.id(), H5D_CONTIGUOUS), "H5Pset_layout");
    h5(H5Pset_alloc_time(plan.id(), H5D_ALLOC_TIME_EARLY), "H5Pset_alloc_time");
    h5(H5Pset_fill_time(plan.id(), H5D_FILL_TIME_NEVER), "H5Pset_fill_time");
    h5(H5Pset_obj_track_times(plan.id(), false), "H5Pset_obj_track_times");
    const std::vector<hsize_t> dims(shape.begin(), shape.end());
    const H5Space space(dims.empty() ? H5Screate(H5S_SCALAR)
                                     : H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
                        "H5Screate " + name);
    return H5Set(
        H5Dcreate2(file_.id(), name.c_str(), h5_type(kind).id(), space.id(), links, plan.id(), H5P_DEFAULT),
        "H5Dcreate2 " + name);
  }

  static std::int64_t offset_of(const H5Set& set, const H5Spec& spec) {
    const haddr_t at = H5Dget_offset(set.id());
    if (at == HADDR_UNDEF && elements(spec) > 0) h5_fail("H5Dget_offset " + spec.name);
    return at == HADDR_UNDEF ? 0 : static_cast<std::int64_t>(at);
  }

  void write_parts() {
    std::vector<char> made;
    bool first = true;
    for (const H5Part& p : job_.parts) {
      const H5Spec& spec = job_.specs[p.dataset];
      const std::int64_t width = bytes_of(spec.kind);
      const std::int64_t begin = p.from * width, end = begin + p.count * width;
      for (std::int64_t at = begin; at < end;) {
        const std::int64_t bytes = std::min(end, (at / kDigestBlock + 1) * kDigestBlock) - at;
        const char* data = static_cast<const char*>(p.data) + (at - begin);
        if (p.data == nullptr) {
          made.resize(static_cast<std::size_t>(kDigestBlock));
          p.fill(at / width, bytes / width, made.data());
          data = made.data();
        }
        const auto crc = static_cast<std::uint32_t>(
            crc32_z(0, reinterpret_cast<const Bytef*>(data), static_cast<z_size_t>(bytes)));
        plain_.write(offsets_[p.dataset] + at, bytes, data);
        fragments_.push_back({static_cast<std::uint32_t>(p.dataset), crc, at, bytes});
        at += bytes;
        if (std::exchange(first, false)) inject("write");
      }
    }
    if (first) inject("write");
  }

  /// Joins what the ranks computed; every byte of every dataset must have come exactly once.
  void write_digests(const std::vector<std::string>& all) {
    std::vector<Fragment> fragments;
    for (const std::string& theirs : all) {
      const std::size_t old = fragments.size();
      fragments.resize(old + theirs.size() / sizeof(Fragment));
      if (!theirs.empty()) std::memcpy(fragments.data() + old, theirs.data(), theirs.size());
    }
    std::sort(fragments.begin(), fragments.end(), [](const Fragment& a, const Fragment& b) {
      return a.dataset != b.dataset ? a.dataset < b.dataset : a.at < b.at;
    });
    std::size_t next = 0;
    for (std::size_t d = 0; d < job_.specs.size(); ++d) {
      const std::int64_t bytes = elements(job_.specs[d]) * bytes_of(job_.specs[d].kind);
      std::vector<std::uint32_t> crcs(static_cast<std::size_t>(digest_blocks(bytes)));
      std::int64_t at = 0;
      for (; next < fragments.size() && fragments[next].dataset == d; ++next) {
        const Fragment& f = fragments[next];
        need(f.at == at,
             "byte " + std::to_string(at) + " of " + job_.specs[d].name + " was not written once");
        std::uint32_t& crc = crcs[static_cast<std::size_t>(at / kDigestBlock)];
        crc = at % kDigestBlock == 0 ? f.crc : static_cast<std::uint32_t>(crc32_combine(crc, f.crc, f.bytes));
        at += f.bytes;
      }
      need(at == bytes, "byte " + std::to_string(at) + " of " + job_.specs[d].name + " was not written once");
      plain_.write(digest_offsets_[d], static_cast<std::int64_t>(crcs.size() * sizeof(std::uint32_t)),
                   crcs.data());
    }
    plain_.sync();
  }

  void abandon() noexcept {
    done_ = true;
    // The name goes first: whatever closing does, nothing half-written is left to find.
    if (world_.rank() == 0 && ::unlink(partial_.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR)
      std::fprintf(stderr, "warning: could not remove %s\n", partial_.c_str());
    file_ = H5File();
    plain_ = File();
  }

  Comm& world_;
  H5Job job_;
  std::string partial_;
  std::int64_t total_ = 0;  // bytes of data and digests
  H5File file_;
  File plain_;  // the same file, for reserving, writing and syncing
  std::vector<std::int64_t> offsets_, digest_offsets_;
  std::vector<Fragment> fragments_;
  std::exception_ptr failure_;
  bool done_ = false;
};

}  // namespace

std::unique_ptr<Save> begin_h5(Comm& world, H5Job job) {
  return std::make_unique<H5Save>(world, std::move(job));
}

}  // namespace annulus
