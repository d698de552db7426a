// GLM-4.5 and 4.6: a role token before each turn and none behind it, so that the next turn's is what ends an
// assistant's; tools in a system's turn, calls as XML, reasoning in <think>.
#include "data/chat/format.h"
#include "data/row.h"

namespace annulus {
namespace {

using Role = Message::Role;

constexpr const char* kTools =
    "<|system|>\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
    "provided with function signatures within <tools></tools> XML tags:\n<tools>\n";
constexpr const char* kCalls =
    "</tools>\n\nFor each function call, output the function name and arguments within the following XML "
    "format:\n<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}</"
    "arg_value>\n"
    "<arg_key>{arg-key-2}</arg_key>\n<arg_value>{arg-value-2}</arg_value>\n...\n</tool_call>";

class Glm : public ChatFormat {
 public:
  const char* name() const override { return "glm4.5"; }
  std::vector<std::string> tokens() const override {
    return {"[gMASK]",       "<sop>",           "<|system|>", "<|user|>",
            "<|assistant|>", "<|observation|>", "<think>",    "</think>"};
  }

  void render(const Conversation& c, Rendering rendering, bool opens, Rendered& to) const override {
    to.words("[gMASK]<sop>");
    if (c.tools && !c.tools->empty()) {
      to.words(kTools);
      for (const JsonValue& tool : *c.tools) to.content(python_json(tool)).words("\n");
      to.words(kCalls);
    }
    const bool training = rendering == Rendering::training;
    const std::ptrdiff_t last_user = last_user_of(c.messages);
    for (std::size_t i = 0; i < c.messages.size(); ++i) {
      const Message& m = c.messages[i];
      const Role* before = i > 0 ? &c.messages[i - 1].role : nullptr;
      // In training the assistant before has said this turn's token.
      const bool said = training && before != nullptr && *before == Role::assistant;
      switch (m.role) {
        case Role::system:
          to.words(said ? "\n" : "<|system|>\n").content(m.content);
          break;
        case Role::user:
          to.words(said ? "\n" : "<|user|>\n").content(m.content);
          break;
        case Role::tool:
          if (!training && (before == nullptr || *before != Role::tool)) to.words("<|observation|>");
          to.words("\n<tool_response>\n").content(m.content).words("\n</tool_response>");
          break;
        case Role::assistant:
          to.words("<|assistant|>");
          to.begin_assistant();
          say(m, static_cast<std::ptrdiff_t>(i) > last_user, to);
          if (training) to.words(next_of(c.messages, i));
          to.end_assistant();
          break;
      }
    }
    if (opens) to.words("<|assistant|>");
  }

 private:
  static std::ptrdiff_t last_user_of(const std::vector<Message>& messages) {
    for (std::size_t i = messages.size(); i-- > 0;)
      if (messages[i].role == Role::user) return static_cast<std::ptrdiff_t>(i);
    return -1;
  }
  /// The token that ends an assistant's turn: whose turn it says is next.
  static const char* next_of(const std::vector<Message>& messages, std::size_t i) {
    if (!messages[i].calls.empty()) return "<|observation|>";
    return i + 1 < messages.size() && messages[i + 1].role == Role::system ? "<|system|>" : "<|user|>";
  }
  static void say(const Message& m, bool open, Rendered& to) {
    const Said said = said_of(m);
    to.words("\n<think>");
    if (open) to.content(python_strip(said.reasoning));
    to.words("</think>");
    if (const std::string_view text = python_strip(said.content); !text.empty()) to.words("\n").content(text);
    for (const ToolCall& call : m.calls) {
      if (!call.arguments.is(JsonValue::Kind::object))
        throw RowError{
            "has arguments of a call that are a text, which data.chat=glm4.5 has no words for; make "
            "them an object"};
      to.words("\n<tool_call>").content(call.name).words("\n");
      for (const auto& [key, value] : call.arguments.members) {
        to.words("<arg_key>").content(key).words("</arg_key>\n<arg_value>");
        to.content(value.is(JsonValue::Kind::text) ? value.text : python_json(value)).words("</arg_value>\n");
      }
      to.words("</tool_call>");
    }
  }
};

}  // namespace

const std::vector<const ChatFormat*>& glm_formats() {
  static const Glm format;
  static const std::vector<const ChatFormat*> all = {&format};
  return all;
}

}  // namespace annulus
