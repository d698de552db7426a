// A state file of awkward shapes, cut among ranks at awkward places.
#pragma once
#include <algorithm>
#include "core/bf16.h"
#include "io/elements.h"
#include "io/io_support.h"

namespace annulus::test {

/// Odd, prime, one, none, scalar; one beyond a digest block in each type (4 MiB = 1,048,576 f32 or 2,097,152
/// bf16).
inline std::vector<DatasetSpec> odd_specs() {
  return {{"/model/a.weight", {7, 13}, DType::f32},
          {"/model/b.weight", {3, 5, 11}, DType::bf16},
          {"/model/scalar", {}, DType::f32},
          {"/model/one", {1}, DType::bf16},
          {"/model/none", {0, 4}, DType::f32},
          {"/model/embed_tokens.weight", {1031, 1021}, DType::f32},
          {"/optimizer/m/b.weight", {2099, 1009}, DType::bf16},
          {"/optimizer/v/a.weight", {7, 13}, DType::f32}};
}

/// The same without the two that take megabytes, for tests of what happens round the data.
inline std::vector<DatasetSpec> small_specs() {
  const std::vector<DatasetSpec> all = odd_specs();
  return {all.begin(), all.begin() + 5};
}

inline std::map<std::string, std::string> odd_facts() {
  return {{"step", "12"}, {"empty", ""}, {"long", std::string(200'000, 'x')}, {"utf8", "größe"}};
}

/// This rank's pieces of every dataset, with the memory they lie in. Cuts fall anywhere, also within a row.
struct OddPieces {
  std::vector<std::vector<char>> memory;
  std::vector<Piece> pieces;

  OddPieces(const std::vector<DatasetSpec>& specs, int rank, int ranks) {
    memory.reserve(specs.size());
    for (std::size_t d = 0; d < specs.size(); ++d) {
      const std::int64_t size = shape_size(specs[d].shape);
      const auto cut = [&](int r) {
        return r == 0 ? 0 : r == ranks ? size : std::min(size, size * r / ranks + (static_cast<int>(d) % 3));
      };
      const std::int64_t from = cut(rank), count = cut(rank + 1) - from;
      memory.emplace_back(static_cast<std::size_t>(count * bytes_of(specs[d].dtype)));
      Tensor t = make_tensor("piece", memory.back().data(), specs[d].dtype, {count});
      if (t.dtype == DType::f32)
        for (std::int64_t i = 0; i < count; ++i) static_cast<float*>(t.data)[i] = value_at(d, from + i);
      else
        for (std::int64_t i = 0; i < count; ++i)
          static_cast<bf16*>(t.data)[i] = narrow(value_at(d, from + i));
      pieces.push_back({specs[d].dataset, t, from});
    }
  }
};

inline void save_odd(Comm& world, const std::string& path, const std::string& fail = "",
                     const std::vector<DatasetSpec>& specs = odd_specs()) {
  const OddPieces mine(specs, world.rank(), world.size());
  save_h5(world, {path, specs, mine.pieces, odd_facts(), fail});
}

inline void save_small(Comm& world, const std::string& path, const std::string& fail = "") {
  save_odd(world, path, fail, small_specs());
}

/// Wrong values among elements [from, from + count) of dataset `d`, read as `type`.
inline std::int64_t wrong_values(H5Reader& reader, std::size_t d, std::int64_t from, std::int64_t count,
                                 DType type) {
  std::vector<char> memory(static_cast<std::size_t>(count * bytes_of(type)));
  const Tensor t = make_tensor("read", memory.data(), type, {count});
  reader.read(odd_specs()[d].dataset, from, count, t);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float got = type == DType::f32 ? static_cast<const float*>(t.data)[i]
                                         : widen(static_cast<const bf16*>(t.data)[i]);
    wrong += got == value_at(d, from + i) ? 0 : 1;
  }
  return wrong;
}

inline std::int64_t wrong_in_file(H5Reader& reader) {
  std::int64_t wrong = 0;
  for (std::size_t d = 0; d < odd_specs().size(); ++d)
    wrong += wrong_values(reader, d, 0, shape_size(odd_specs()[d].shape), DType::f32);
  return wrong;
}

}  // namespace annulus::test
