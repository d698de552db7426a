#include "data/chat/format.h"
#include "data/row.h"

namespace annulus {
namespace {

std::vector<const ChatFormat*> all_formats() {
  std::vector<const ChatFormat*> all;
  for (const auto* family : {&chatml_formats(), &qwen_formats(), &llama_formats(), &harmony_formats(),
                             &glm_formats(), &deepseek_formats()})
    all.insert(all.end(), family->begin(), family->end());
  return all;
}

}  // namespace

Rendered& Rendered::words(std::string_view text) {
  const std::size_t begin = text_.size();
  text_ += text;
  if (!open_.empty() && open_.back().end == begin)
    open_.back().end = text_.size();
  else
    open_.push_back({begin, text_.size()});
  return *this;
}

Rendered& Rendered::content(std::string_view text) {
  text_ += text;
  return *this;
}

const ChatFormat* find_chat_format(std::string_view name) {
  for (const ChatFormat* f : all_formats())
    if (name == f->name()) return f;
  return nullptr;
}

std::string chat_format_names() {
  std::string out;
  for (const ChatFormat* f : all_formats()) out.append(out.empty() ? "" : ", ").append(f->name());
  return out;
}

Said said_of(const Message& m) {
  if (m.reasoning) return {*m.reasoning, m.content};
  static constexpr std::string_view kBegin = "<think>", kEnd = "</think>";
  const std::string& text = m.content;
  const std::size_t first = text.find(kEnd);
  if (first == std::string::npos) return {"", text};
  std::string_view thought = without_newlines_behind(std::string_view(text).substr(0, first));
  if (const std::size_t begin = thought.rfind(kBegin); begin != std::string_view::npos)
    thought = thought.substr(begin + kBegin.size());
  const std::string_view rest = std::string_view(text).substr(text.rfind(kEnd) + kEnd.size());
  return {std::string(without_newlines_before(thought)), std::string(without_newlines_before(rest))};
}

void refuse_tools(const Conversation& c, const char* format) {
  const std::string cannot = std::string(", which data.chat=") + format + " has no words for";
  if (c.tools && !c.tools->empty()) throw RowError{"has tools" + cannot};
  for (const Message& m : c.messages)
    if (m.role == Message::Role::tool || !m.calls.empty())
      throw RowError{"has calls or results of tools" + cannot};
}

}  // namespace annulus
