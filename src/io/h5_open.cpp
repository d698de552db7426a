// Opening a file that somebody else may have made: the library parses, and nothing that it says is taken on
// trust. Data are then read as plain byte ranges, without the library.
#include <unistd.h>
#include <zlib.h>
#include <algorithm>
#include <cerrno>
#include <set>
#include "io/h5.h"
#include "io/h5_file.h"

namespace annulus {
namespace {

// More than any model of today has; they bound what a hostile file can make us do.
constexpr std::size_t kMostLinks = 1'000'000;
constexpr int kMostDepth = 8;
constexpr int kMostDimensions = 8;
constexpr std::size_t kMostFactBytes = std::size_t{64} << 20;

const char* name_of(H5Kind kind) {
  constexpr const char* names[] = {"f32", "bf16", "f64", "i32", "i64", "u8", "u32"};
  return names[static_cast<int>(kind)];
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  input_error(path + ": " + shown(why) + "; Annulus reads only what it writes: make the file again");
}

struct Links {
  std::vector<std::pair<std::string, H5L_type_t>> found;
  bool failed = false;  // an exception must not pass through the library's frames
};

herr_t note_link(hid_t, const char* name, const H5L_info_t* info, void* data) noexcept {
  auto& links = *static_cast<Links*>(data);
  try {
    if (links.found.size() >= kMostLinks) throw std::length_error("links");
    links.found.emplace_back(name, info->type);
    return 0;
  } catch (const std::exception&) {
    links.failed = true;
    return -1;
  }
}

herr_t note_attribute(hid_t, const char* name, const H5A_info_t*, void* data) noexcept {
  auto& links = *static_cast<Links*>(data);
  try {
    if (links.found.size() >= kMostLinks) throw std::length_error("attributes");
    links.found.emplace_back(name, H5L_TYPE_HARD);
    return 0;
  } catch (const std::exception&) {
    links.failed = true;
    return -1;
  }
}

class Opener {
 public:
  explicit Opener(const std::string& path) { index_.path = path; }

  H5Index open() {
    // Says "there is no such file" and refuses pipes and folders before the library sees them.
    File::open_for_reading(index_.path);
    try {
      h5_start();
      const H5Plan access(H5Pcreate(H5P_FILE_ACCESS), "H5Pcreate");
      h5(H5Pset_fapl_sec2(access.id()), "H5Pset_fapl_sec2");
      h5(H5Pset_file_locking(access.id(), false, true), "H5Pset_file_locking");
      const H5File file(H5Fopen(index_.path.c_str(), H5F_ACC_RDONLY, access.id()), "H5Fopen");
      take_descriptor(file, access);
      read_marks(file);
      read_facts(file);
      const H5Group root(H5Gopen2(file.id(), "/", H5P_DEFAULT), "H5Gopen2");
      walk(root.id(), "", 0);
    } catch (const H5Failure& e) {
      input_error(index_.path + " cannot be read as an Annulus HDF5 file (" + shown(e.what()) +
                  "); it is not one or is damaged: copy it again, or use another");
    }
    join_digests();
    refuse_overlaps();
    return std::move(index_);
  }

 private:
  void take_descriptor(const H5File& file, const H5Plan& access) {
    // The library's own descriptor: the data are read from the very file that was checked.
    void* handle = nullptr;
    h5(H5Fget_vfd_handle(file.id(), access.id(), &handle), "H5Fget_vfd_handle");
    const int mine = ::dup(*static_cast<int*>(handle));
    if (mine < 0) system_error("open a second time", index_.path, errno);
    index_.file = File(mine, index_.path);
    size_ = index_.file.size();
  }

  void read_marks(const H5File& file) {
    const std::int64_t version = h5_read_number(file.id(), "version");
    if (version != kH5Version)
      refuse(index_.path,
             "its format version is " + std::to_string(version) + ", not " + std::to_string(kH5Version));
    if (h5_read_number(file.id(), "complete") != 1)
      input_error(index_.path + " is not whole: the save that wrote it did not finish; use another file");
    index_.kind = h5_read_text(file.id(), "kind", 64);
    if (index_.kind != kStateFile && index_.kind != kTokensFile)
      refuse(index_.path, "its kind '" + index_.kind + "' is unknown");
  }

  void read_facts(const H5File& file) {
    const H5Group group(H5Gopen2(file.id(), facts_group(index_.kind), H5P_DEFAULT), "H5Gopen2");
    Links names;
    h5(H5Aiterate2(group.id(), H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, &note_attribute, &names),
       "H5Aiterate2");
    std::size_t left = kMostFactBytes;
    for (const auto& [name, type] : names.found) {
      std::string text = h5_read_text(group.id(), name, left);
      left -= text.size();
      index_.facts.emplace(name, std::move(text));
    }
  }

  void walk(hid_t group, const std::string& prefix, int depth) {
    if (depth > kMostDepth)
      refuse(index_.path, "its groups are nested deeper than " + std::to_string(kMostDepth));
    Links links;
    h5(H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, &note_link, &links), "H5Literate");
    for (const auto& [link, type] : links.found) {
      const std::string name = prefix + "/" + link;
      // Before anything is opened by that name: opening would follow the link.
      if (type != H5L_TYPE_HARD)
        refuse(index_.path, name + (type == H5L_TYPE_EXTERNAL ? " is an external link" : " is a soft link"));
      const H5Object object(H5Oopen(group, link.c_str(), H5P_DEFAULT), "H5Oopen " + name);
      H5O_info_t info;
      h5(H5Oget_info2(object.id(), &info, H5O_INFO_BASIC), "H5Oget_info2 " + name);
      if (!seen_.insert(info.addr).second || info.rc != 1)
        refuse(index_.path, name + " has a second name in the file");
      if (seen_.size() > kMostLinks) refuse(index_.path, "it holds too many objects");
      if (info.type == H5O_TYPE_GROUP)
        walk(object.id(), name, depth + 1);
      else if (info.type == H5O_TYPE_DATASET)
        take_set(object.id(), name);
      else
        refuse(index_.path, name + " is neither a group nor a dataset");
    }
  }

  void take_set(hid_t set, const std::string& name) {
    const H5Plan plan(H5Dget_create_plist(set), "H5Dget_create_plist");
    if (h5(H5Pget_external_count(plan.id()), "H5Pget_external_count") != 0)
      refuse(index_.path, name + " lies in external files");
    if (h5(H5Pget_layout(plan.id()), "H5Pget_layout") != H5D_CONTIGUOUS)
      refuse(index_.path, name + " is not stored contiguously");
    if (h5(H5Pget_nfilters(plan.id()), "H5Pget_nfilters") != 0) refuse(index_.path, name + " is filtered");
    H5Dataset d;
    d.name = name;
    d.kind = kind_of(set, name);
    d.bytes = bytes_of(d.kind);
    read_shape(set, d);
    if (d.bytes > 0) {
      const haddr_t at = H5Dget_offset(set);
      if (at == HADDR_UNDEF || H5Dget_storage_size(set) != static_cast<hsize_t>(d.bytes))
        refuse(index_.path, name + " has no data of its size");
      if (at > static_cast<haddr_t>(size_) || d.bytes > size_ - static_cast<std::int64_t>(at))
        refuse(index_.path, name + " ends at byte " + std::to_string(at + static_cast<haddr_t>(d.bytes)) +
                                ", beyond the file's " + std::to_string(size_));
      d.offset = static_cast<std::int64_t>(at);
    }
    sets_.push_back(std::move(d));
  }

  H5Kind kind_of(hid_t set, const std::string& name) {
    const H5Type type(H5Dget_type(set), "H5Dget_type " + name);
    for (H5Kind kind : kH5Kinds)
      if (h5(H5Tequal(type.id(), h5_type(kind).id()), "H5Tequal") > 0) return kind;
    refuse(index_.path, name + " has a type that no Annulus file holds");
  }

  void read_shape(hid_t set, H5Dataset& d) {
    const H5Space space(H5Dget_space(set), "H5Dget_space " + d.name);
    const H5S_class_t kind = H5Sget_simple_extent_type(space.id());
    const int rank = h5(H5Sget_simple_extent_ndims(space.id()), "H5Sget_simple_extent_ndims");
    if ((kind != H5S_SIMPLE && kind != H5S_SCALAR) || rank > kMostDimensions)
      refuse(index_.path, d.name + " has a shape that no Annulus file holds");
    std::vector<hsize_t> dims(static_cast<std::size_t>(rank));
    if (rank > 0)
      h5(H5Sget_simple_extent_dims(space.id(), dims.data(), nullptr), "H5Sget_simple_extent_dims");
    for (hsize_t n : dims) {
      if (n > static_cast<hsize_t>(INT64_MAX) ||
          __builtin_mul_overflow(d.bytes, static_cast<std::int64_t>(n), &d.bytes))
        refuse(index_.path, d.name + " has a shape whose size overflows");
      d.shape.push_back(static_cast<std::int64_t>(n));
    }
  }

  void join_digests() {
    const std::string prefix = "/digest/";
    std::map<std::string, const H5Dataset*> digests;
    for (const H5Dataset& d : sets_)
      if (d.name.starts_with(prefix)) digests[d.name.substr(prefix.size() - 1)] = &d;
    for (const H5Dataset& d : sets_) {
      if (d.name.starts_with(prefix)) continue;
      H5Dataset whole = d;
      if (d.bytes > 0) {
        const auto found = digests.find(d.name);
        const std::int64_t blocks = (d.bytes - 1) / kDigestBlock + 1;
        if (found == digests.end()) refuse(index_.path, d.name + " has no digest");
        if (found->second->kind != H5Kind::u32 || found->second->shape != std::vector<std::int64_t>{blocks})
          refuse(index_.path, "the digest of " + d.name + " is not " + std::to_string(blocks) +
                                  " numbers of u32, but " + name_of(found->second->kind));
        whole.digest_offset = found->second->offset;
        digests.erase(found);
      }
      index_.datasets.push_back(std::move(whole));
    }
    if (!digests.empty()) refuse(index_.path, "/digest" + digests.begin()->first + " belongs to no dataset");
    std::sort(index_.datasets.begin(), index_.datasets.end(),
              [](const H5Dataset& a, const H5Dataset& b) { return a.name < b.name; });
  }

  void refuse_overlaps() {
    std::sort(sets_.begin(), sets_.end(),
              [](const H5Dataset& a, const H5Dataset& b) { return a.offset < b.offset; });
    const H5Dataset* before = nullptr;
    for (const H5Dataset& d : sets_) {
      if (d.bytes == 0) continue;
      if (before != nullptr && before->offset + before->bytes > d.offset)
        refuse(index_.path, before->name + " and " + d.name + " overlap at byte " + std::to_string(d.offset));
      before = &d;
    }
  }

  H5Index index_;
  std::int64_t size_ = 0;
  std::set<haddr_t> seen_;
  std::vector<H5Dataset> sets_;  // digests among them
};

}  // namespace

std::int64_t bytes_of(H5Kind kind) {
  constexpr std::int64_t bytes[] = {4, 2, 8, 4, 8, 1, 4};
  return bytes[static_cast<int>(kind)];
}

H5Kind h5_kind(DType type) {
  switch (type) {
    case DType::f32:
      return H5Kind::f32;
    case DType::bf16:
      return H5Kind::bf16;
    case DType::f64:
      return H5Kind::f64;
    case DType::i32:
      return H5Kind::i32;
    case DType::i64:
      return H5Kind::i64;
    case DType::u8:
      return H5Kind::u8;
  }
  fail("h5_kind", "unknown type");
}

const H5Dataset* H5Index::find(const std::string& name) const {
  const auto at = std::lower_bound(datasets.begin(), datasets.end(), name,
                                   [](const H5Dataset& d, const std::string& n) { return d.name < n; });
  return at != datasets.end() && at->name == name ? &*at : nullptr;
}

const H5Dataset& H5Index::at(const std::string& name) const {
  if (const H5Dataset* d = find(name)) return *d;
  input_error(path + " holds no dataset " + name +
              "; it was made for another model or by another kind of run");
}

H5Index open_h5_index(const std::string& path) {
  return Opener(path).open();
}

void verify_h5(Comm& world, const H5Index& index) {
  agreed(world, "verify", [&] {
    std::vector<std::int64_t> sizes;
    for (const H5Dataset& d : index.datasets) sizes.push_back(d.bytes);
    std::vector<char> block(static_cast<std::size_t>(kDigestBlock));
    for_my_blocks(sizes, world.rank(), world.size(), [&](std::size_t i, std::int64_t at, std::int64_t bytes) {
      const H5Dataset& d = index.datasets[i];
      std::uint32_t want = 0;
      index.file.read(d.digest_offset + at / kDigestBlock * 4, 4, &want);
      index.file.read(d.offset + at, bytes, block.data());
      const uLong got =
          crc32_z(0, reinterpret_cast<const Bytef*>(block.data()), static_cast<z_size_t>(bytes));
      if (got != want)
        input_error(index.path + ": bytes " + std::to_string(at) + " to " + std::to_string(at + bytes - 1) +
                    " of " + d.name + " are not what was written (file bytes " +
                    std::to_string(d.offset + at) + " to " + std::to_string(d.offset + at + bytes - 1) +
                    "); the file is damaged: use another");
    });
  });
}

}  // namespace annulus
