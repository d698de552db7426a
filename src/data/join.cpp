#include "data/join.h"
#include <algorithm>
#include <cstring>
#include <string>

namespace annulus {

void TokenLayout::keep(std::int64_t from, std::int64_t count) {
  if (count == 0) return;
  if (!kept.empty() && kept.back().from + kept.back().count == from)
    kept.back().count += count;
  else
    kept.push_back({from, count});
  tokens += count;
}

TokenLayout join_texts(Comm& world, const std::vector<std::int64_t>& lengths, bool continues,
                       std::int64_t tokens, std::int64_t most, std::int64_t take) {
  TokenLayout mine;
  // The document that is being joined goes from rank to rank.
  struct Open {
    std::int64_t length = 0;     // tokens that it has so far; 0: the next text begins a document
    std::int64_t documents = 0;  // begun so far
  } open;
  for (int q = 0; q < world.size(); ++q) {
    if (q == world.rank()) {
      std::int64_t at = 0;
      for (const std::int64_t& length : lengths) {
        const bool begins = !continues || &length != &lengths.front();
        if (begins && open.length >= tokens) open.length = 0;
        if (open.length == 0) ++open.documents;
        const bool counts = take == 0 || open.documents <= take;
        if (counts && open.length == 0) mine.starts.push_back(mine.tokens);
        const std::int64_t fits = most > 0 ? std::clamp<std::int64_t>(most - open.length, 0, length) : length;
        if (counts) {
          mine.keep(at, fits);
          mine.cut += length - fits;
        }
        at += length;
        open.length += length;
      }
    }
    std::string bytes(sizeof open, '\0');
    std::memcpy(bytes.data(), &open, sizeof open);
    world.broadcast(bytes, q);
    std::memcpy(&open, bytes.data(), sizeof open);
  }
  return mine;
}

}  // namespace annulus
