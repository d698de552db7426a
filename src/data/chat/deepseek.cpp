// DeepSeek R1 and the models distilled from it: what systems say comes first, bare; thoughts that stand in an
// assistant's content are dropped (in training: by R1's template, not by the distilled models').
#include "data/chat/format.h"
#include "data/row.h"

namespace annulus {
namespace {

using Role = Message::Role;

constexpr const char* kEnd = "<｜end▁of▁sentence｜>";

class DeepSeek : public ChatFormat {
 public:
  std::vector<std::string> tokens() const override {
    return {"<｜begin▁of▁sentence｜>", kEnd, "<｜User｜>", "<｜Assistant｜>"};
  }

 protected:
  void refuse_reasoning(const Message& m) const {
    if (m.reasoning && !m.reasoning->empty())
      throw RowError{std::string("has reasoning_content, which data.chat=") + name() + " has no words for"};
  }
  static std::string_view behind_thoughts(const std::string& text) {
    static constexpr std::string_view kThought = "</think>";
    const std::size_t at = text.rfind(kThought);
    return at == std::string::npos ? std::string_view(text)
                                   : std::string_view(text).substr(at + kThought.size());
  }
};

class R1 : public DeepSeek {
 public:
  const char* name() const override { return "deepseek-r1"; }

  void render(const Conversation& c, Rendering, bool opens, Rendered& to) const override {
    if (c.tools && !c.tools->empty())
      throw RowError{"has tools, which data.chat=deepseek-r1 has no words for (but for calls and results)"};
    to.words("<｜begin▁of▁sentence｜>");
    bool first = true;
    for (const Message& m : c.messages) {
      if (m.role != Role::system) continue;
      if (!first) to.words("\n\n");
      first = false;
      to.content(m.content);
    }
    bool called = false, results = false, open = false;  // open: results that no assistant has taken yet
    for (const Message& m : c.messages) {
      switch (m.role) {
        case Role::system:
          break;
        case Role::user:
          open = false;
          to.words("<｜User｜>").content(m.content);
          break;
        case Role::tool:
          if (!results) to.words("<｜tool▁outputs▁begin｜>");
          to.words("<｜tool▁output▁begin｜>").content(m.content).words("<｜tool▁output▁end｜>");
          results = open = true;
          break;
        case Role::assistant:
          refuse_reasoning(m);
          to.begin_assistant();
          if (!m.calls.empty()) {
            calls(m, called, to);
            called = true;
          } else if (open) {
            to.words("<｜tool▁outputs▁end｜>").content(m.content).words(kEnd);
          } else {
            to.words("<｜Assistant｜>").content(behind_thoughts(m.content)).words(kEnd);
          }
          open = false;
          to.end_assistant();
          break;
      }
    }
    if (open)
      to.words("<｜tool▁outputs▁end｜>");
    else if (opens)
      to.words("<｜Assistant｜><think>\n");
  }

 private:
  /// The template writes the head of a turn that calls before the first call of the conversation alone.
  static void calls(const Message& m, bool called, Rendered& to) {
    if (called && !m.content.empty())
      throw RowError{
          "has a second turn that calls tools and says something, which data.chat=deepseek-r1 "
          "would drop"};
    if (!called) to.words("<｜Assistant｜>").content(m.content).words("<｜tool▁calls▁begin｜>");
    for (const ToolCall& call : m.calls) {
      if (called || &call != &m.calls.front()) to.words("\n");
      const bool text = call.arguments.is(JsonValue::Kind::text);
      to.words("<｜tool▁call▁begin｜>").content(call.type).words("<｜tool▁sep｜>").content(call.name);
      to.words("\n```json\n").content(text ? call.arguments.text : python_json(call.arguments));
      to.words("\n```<｜tool▁call▁end｜>");
    }
    to.words("<｜tool▁calls▁end｜>").words(kEnd);
  }
};

class R1Distill : public DeepSeek {
 public:
  const char* name() const override { return "deepseek-r1-distill"; }

  void render(const Conversation& c, Rendering rendering, bool opens, Rendered& to) const override {
    refuse_tools(c, name());
    to.words("<｜begin▁of▁sentence｜>");
    bool system = false;
    for (const Message& m : c.messages) {
      if (m.role != Role::system) continue;
      if (system)
        throw RowError{"has two system's turns, which data.chat=deepseek-r1-distill has no words for"};
      system = true;
      to.content(m.content);
    }
    for (const Message& m : c.messages) {
      if (m.role == Role::user) to.words("<｜User｜>").content(m.content);
      if (m.role != Role::assistant) continue;
      refuse_reasoning(m);
      to.begin_assistant();
      to.words("<｜Assistant｜>");
      if (rendering == Rendering::training)
        to.content(m.content);
      else
        to.content(behind_thoughts(m.content));
      to.words(kEnd);
      to.end_assistant();
    }
    if (opens) to.words("<｜Assistant｜><think>\n");
  }
};

}  // namespace

const std::vector<const ChatFormat*>& deepseek_formats() {
  static const R1 first;
  static const R1Distill distilled;
  static const std::vector<const ChatFormat*> all = {&first, &distilled};
  return all;
}

}  // namespace annulus
