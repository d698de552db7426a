#include "data/join.h"
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

namespace annulus {
namespace {

template <class T>
std::string bytes_of_vector(const std::vector<T>& v, std::size_t count) {
  std::string out(count * sizeof(T), '\0');
  if (count > 0) std::memcpy(out.data(), v.data(), out.size());
  return out;
}

template <class T>
std::vector<T> vector_of_bytes(const char* bytes, std::size_t count) {
  std::vector<T> out(count);
  if (count > 0) std::memcpy(out.data(), bytes, count * sizeof(T));
  return out;
}

}  // namespace

void join_texts(Comm& world, TokenPart& part, std::int64_t tokens) {
  // Every rank learns the lengths of all texts and forms the same documents from them.
  const std::vector<std::string> everybody =
      world.all_gather(bytes_of_vector(part.lengths, part.lengths.size()));
  std::vector<std::int64_t> documents;  // lengths of this rank's
  std::vector<int> leaves_to(everybody.size(),
                             -1);      // rank whose last document a rank's first texts belong to
  std::int64_t open = 0, leaving = 0;  // tokens of the unfinished document; tokens this rank gives away
  int owner = 0;
  for (int q = 0; q < world.size(); ++q) {
    const std::string& bytes = everybody[static_cast<std::size_t>(q)];
    for (const std::int64_t length :
         vector_of_bytes<std::int64_t>(bytes.data(), bytes.size() / sizeof(std::int64_t))) {
      if (open == 0) {
        owner = q;
        if (q == world.rank()) documents.push_back(0);
      }
      open += length;
      if (owner == world.rank()) documents.back() += length;
      if (owner != q) {
        leaves_to[static_cast<std::size_t>(q)] = owner;
        if (q == world.rank()) leaving += length;
      }
      if (open >= tokens) open = 0;
    }
  }
  const auto gone = static_cast<std::size_t>(leaving);
  const std::vector<std::string> moved =
      world.all_gather(bytes_of_vector(part.ids, gone) + bytes_of_vector(part.mask, gone));
  part.ids.erase(part.ids.begin(), part.ids.begin() + leaving);
  part.mask.erase(part.mask.begin(), part.mask.begin() + leaving);
  for (int q = world.rank() + 1; q < world.size(); ++q) {
    if (leaves_to[static_cast<std::size_t>(q)] != world.rank()) continue;
    const std::string& bytes = moved[static_cast<std::size_t>(q)];
    const std::size_t count = bytes.size() / (sizeof(std::int32_t) + 1);
    const auto ids = vector_of_bytes<std::int32_t>(bytes.data(), count);
    const auto mask = vector_of_bytes<std::uint8_t>(bytes.data() + count * sizeof(std::int32_t), count);
    part.ids.insert(part.ids.end(), ids.begin(), ids.end());
    part.mask.insert(part.mask.end(), mask.begin(), mask.end());
  }
  part.lengths = std::move(documents);
}

}  // namespace annulus
