#include "data/tokenizer/added_tokens.h"

namespace annulus {

void AddedTokens::add(std::string_view content, std::int32_t id) {
  begins_[static_cast<std::uint8_t>(content[0])] = true;
  std::size_t at = 0;
  for (const char c : content) {
    const Node* there = step(nodes_[at], c);
    if (there != nullptr) {
      at = static_cast<std::size_t>(there - nodes_.data());
      continue;
    }
    nodes_[at].next.emplace_back(c, static_cast<std::uint32_t>(nodes_.size()));
    at = nodes_.size();
    nodes_.emplace_back();
  }
  nodes_[at].id = id;
}

const AddedTokens::Node* AddedTokens::step(const Node& node, char c) const {
  for (const auto& [byte, child] : node.next)
    if (byte == c) return &nodes_[child];
  return nullptr;
}

bool AddedTokens::find(std::string_view text, std::size_t from, Found& found) const {
  if (nodes_.size() == 1) return false;
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_[static_cast<std::uint8_t>(text[begin])]) continue;
    found.id = -1;
    const Node* node = nodes_.data();
    for (std::size_t at = begin; at < text.size() && (node = step(*node, text[at])) != nullptr; ++at)
      if (node->id >= 0) found = {begin, at + 1, node->id};
    if (found.id >= 0) return true;
  }
  return false;
}

}  // namespace annulus
