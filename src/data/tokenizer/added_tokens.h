// Tokens that are cut out of a text before anything else is done with it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace annulus {

class AddedTokens {
 public:
  /// `content` has at least one byte.
  void add(std::string_view content, std::int32_t id);

  struct Found {
    std::size_t begin = 0, end = 0;
    std::int32_t id = 0;
  };
  /// Whether a token begins with this byte.
  bool may_begin(char c) const { return begins_[static_cast<std::uint8_t>(c)]; }
  /// The leftmost token at or behind `from`, and of those that begin there the longest; false when there is
  /// none.
  bool find(std::string_view text, std::size_t from, Found&) const;

 private:
  struct Node {
    std::int32_t id = -1;
    std::vector<std::pair<char, std::uint32_t>> next;
  };
  const Node* step(const Node&, char) const;
  std::vector<Node> nodes_ = {Node{}};  // a tree by bytes; the root is first
  bool begins_[256] = {};
};

}  // namespace annulus
