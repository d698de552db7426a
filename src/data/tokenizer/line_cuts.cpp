#include "data/tokenizer/line_cuts.h"
#include <algorithm>
#include <string_view>
#include "data/tokenizer/pattern.h"
#include "data/tokenizer/unicode.h"

namespace annulus {
namespace {

struct Node;
using Sequence = std::vector<Node>;

/// One character's expression, or a group of alternatives.
struct Node {
  std::unique_ptr<Pattern> one;
  std::vector<Sequence> alternatives;
  bool repeats = false;
};

/// Reads an expression as far as this file needs it; false where it is not understood.
class Reader {
 public:
  Reader(const std::string& expression, const std::string& where) : in_(expression), where_(where) {}

  bool read(std::vector<Sequence>& to) { return alternatives(to, false) && at_ == in_.size(); }

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  bool takes(std::string_view text) {
    if (std::string_view(in_).substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }

  bool alternatives(std::vector<Sequence>& to, bool any_case) {
    to.emplace_back();
    while (at_ < in_.size() && peek() != ')') {
      if (takes("|"))
        to.emplace_back();
      else if (!element(to.back(), any_case))
        return false;
    }
    return true;
  }

  bool element(Sequence& to, bool any_case) {
    if (takes("(?=") || takes("(?!")) {  // looks ahead: by one character, and takes none
      std::size_t length = 0;
      if (!one_character(length)) return false;
      at_ += length;
      return takes(")");
    }
    Node node;
    if (takes("(?:") || takes("(?>") || takes("(?i:")) {
      if (!alternatives(node.alternatives, any_case || in_[at_ - 2] == 'i') || !takes(")")) return false;
    } else {
      std::size_t length = 0;
      if (!one_character(length)) return false;
      const std::string one = in_.substr(at_, length);
      at_ += length;
      node.one = std::make_unique<Pattern>(any_case ? "(?i:" + one + ")" : one, where_);
    }
    if (!quantity(node)) return false;
    to.push_back(std::move(node));
    return true;
  }

  bool quantity(Node& node) {
    if (takes("{")) {
      node.repeats = true;
      const std::size_t end = in_.find('}', at_);
      if (end == std::string::npos) return false;
      at_ = end + 1;
      return true;
    }
    const char sign = peek();
    if (sign != '?' && sign != '*' && sign != '+') return true;
    node.repeats = sign != '?';
    ++at_;
    if (peek() == '?' || peek() == '+') ++at_;  // less, or without giving back
    return true;
  }

  /// The length of an expression of one character.
  bool one_character(std::size_t& length) const {
    const char c = peek();
    if (c == '[') return set(length);
    if (c == '\\') return escape(at_, length);
    if (c == '\0' || std::string_view("^$()|?*+{}]").find(c) != std::string_view::npos) return false;
    std::size_t end = at_;
    next_code_point(in_, end);
    length = end - at_;
    return true;
  }

  bool escape(std::size_t at, std::size_t& length) const {
    const char c = at + 1 < in_.size() ? in_[at + 1] : '\0';
    const bool braced = at + 2 < in_.size() && in_[at + 2] == '{';
    if (c == 'p' || c == 'P' || (c == 'x' && braced)) {
      const std::size_t end = in_.find('}', at);
      length = end - at + 1;
      return braced && end != std::string::npos;
    }
    length = c == 'x' ? 4 : c == 'u' ? 6 : 2;
    const auto byte = static_cast<unsigned char>(c);
    const bool letter =
        (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (c >= '0' && c <= '9');
    return at + length <= in_.size() && byte > ' ' && byte < 0x80 &&
           (!letter || std::string_view("sSdDrntfvxu").find(c) != std::string_view::npos);
  }

  bool set(std::size_t& length) const {
    std::size_t at = at_ + 1;
    if (at < in_.size() && in_[at] == '^') ++at;
    if (at < in_.size() && in_[at] == ']') return false;
    while (at < in_.size() && in_[at] != ']') {
      std::size_t more = 1;
      if (in_[at] == '[' || (in_[at] == '\\' && !escape(at, more))) return false;
      at += more;
    }
    length = at + 1 - at_;
    return at < in_.size();
  }

  const std::string& in_;
  const std::string& where_;
  std::size_t at_ = 0;
};

/// What a part of an expression can match: \n, the other character, and perhaps both in one match.
struct Can {
  bool newline = false, other = false, both = false;
};

Can look(const std::vector<Sequence>& alternatives, const std::string& other);

Can look(const Node& node, const std::string& other) {
  Can can;
  if (node.one) {
    Pattern::Match match;
    can.newline = node.one->find("\n", 0, match);
    can.other = node.one->find(other, 0, match);
  } else {
    can = look(node.alternatives, other);
  }
  can.both = can.both || (node.repeats && can.newline && can.other);
  return can;
}

Can look(const std::vector<Sequence>& alternatives, const std::string& other) {
  Can all;
  for (const Sequence& sequence : alternatives) {
    Can before;
    for (const Node& node : sequence) {
      const Can can = look(node, other);
      before.both = before.both || can.both || (before.newline && can.other);
      before.newline = before.newline || can.newline;
      before.other = before.other || can.other;
    }
    all.newline = all.newline || before.newline;
    all.other = all.other || before.other;
    all.both = all.both || before.both;
  }
  return all;
}

}  // namespace

struct LineCuts::Step {
  std::vector<Sequence> alternatives;
  std::unique_ptr<Pattern> whole;
};

LineCuts::LineCuts(const std::vector<SplitStep>& steps, const std::string& where) {
  for (const SplitStep& s : steps) {
    auto step = std::make_unique<Step>();
    if (!s.keep_matches || !s.keep_gaps || !Reader(s.expression, where).read(step->alternatives)) {
      steps_.clear();
      return;
    }
    step->whole = std::make_unique<Pattern>(s.expression, where);
    steps_.push_back(std::move(step));
  }
}

LineCuts::~LineCuts() = default;
LineCuts::LineCuts(LineCuts&&) noexcept = default;

bool LineCuts::before(std::uint32_t character) {
  if (none()) return false;
  if (const auto at = known_.find(character); at != known_.end()) return at->second;
  std::string other;
  append_code_point(character, other);
  bool cuts = character != '\n';
  for (const auto& step : steps_) {
    const Can can = look(step->alternatives, other);
    cuts = cuts && (step == steps_.back() ? !can.both : !can.other);
  }
  Pattern::Match match;
  cuts = cuts && steps_.back()->whole->find("\n" + other, 0, match) && match.begin == 0 && match.end == 1;
  known_.emplace(character, cuts);
  return cuts;
}

}  // namespace annulus
