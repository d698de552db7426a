// Annulus's HDF5 files from the inside: how they are laid out, and how they are opened. No HDF5 call here.
//
//   /                attributes version, complete (i64) and kind ("state": weights and checkpoints, "tokens")
//   /NAME ...        contiguous datasets of the types below, full shapes
//   /digest/NAME     u32, the CRC-32 of every 4 MiB of /NAME's row-major bytes; none for an empty dataset
//   /run             string attributes (/source in a token file)
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>
#include "comm/comm.h"
#include "core/tensor.h"
#include "io/file.h"

namespace annulus {

/// Element types, all little-endian.
enum class H5Kind : std::uint8_t { f32, bf16, f64, i32, i64, u8, u32 };
inline constexpr H5Kind kH5Kinds[] = {H5Kind::f32, H5Kind::bf16, H5Kind::f64, H5Kind::i32,
                                      H5Kind::i64, H5Kind::u8,   H5Kind::u32};
std::int64_t bytes_of(H5Kind);
H5Kind h5_kind(DType);

inline constexpr std::int64_t kH5Version = 1;
inline constexpr std::int64_t kDigestBlock = std::int64_t{4} << 20;
inline constexpr const char* kStateFile = "state";
inline constexpr const char* kTokensFile = "tokens";
inline const char* facts_group(const std::string& kind) {
  return kind == kTokensFile ? "/source" : "/run";
}

struct H5Dataset {
  std::string name;  // "/model/model.norm.weight"
  std::vector<std::int64_t> shape;
  H5Kind kind = H5Kind::f32;
  std::int64_t bytes = 0;
  std::int64_t offset = 0;         // of its bytes in the file
  std::int64_t digest_offset = 0;  // of its digests
};

/// A whole file that has been checked: what is in it and where. Its data are plain byte ranges of `file`.
struct H5Index {
  std::string path, kind;
  std::map<std::string, std::string> facts;
  std::vector<H5Dataset> datasets;  // sorted by name
  File file;

  const H5Dataset* find(const std::string& name) const;
  /// The dataset, or an input error that names the file and what was asked for.
  const H5Dataset& at(const std::string& name) const;
};

/// Opens and checks everything that can be checked without reading the data: whole, known version, nothing
/// but contiguous datasets of known types that lie in the file, each with its digests. Input errors
/// otherwise.
H5Index open_h5_index(const std::string& path);
/// Every digest, the ranks sharing the work; an input error names dataset and byte range. Collective.
void verify_h5(Comm& world, const H5Index&);

/// Visits blocks of at most kDigestBlock bytes of several arrays, the part of rank `rank` of `ranks`:
/// visit(array, first byte, bytes). Ranks get equal counts of consecutive blocks.
template <class Visit>
void for_my_blocks(std::span<const std::int64_t> sizes, int rank, int ranks, const Visit& visit) {
  std::int64_t all = 0;
  for (std::int64_t bytes : sizes) all += (bytes + kDigestBlock - 1) / kDigestBlock;
  const auto edge = [&](int r) { return all / ranks * r + all % ranks * r / ranks; };
  std::int64_t first = edge(rank), last = edge(rank + 1), base = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t blocks = (sizes[i] + kDigestBlock - 1) / kDigestBlock;
    for (std::int64_t b = std::max(first - base, std::int64_t{0}); b < std::min(last - base, blocks); ++b)
      visit(i, b * kDigestBlock, std::min(kDigestBlock, sizes[i] - b * kDigestBlock));
    base += blocks;
  }
}

}  // namespace annulus
