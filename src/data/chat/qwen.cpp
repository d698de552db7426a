// The Qwen family's ChatML: tools in the system turn, calls as JSON in <tool_call>, results as a user's turn,
// and for models that think, reasoning in <think>.
#include <string>
#include "data/chat/format.h"

namespace annulus {
namespace {

using Role = Message::Role;

constexpr const char* kTools =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with "
    "function signatures within <tools></tools> XML tags:\n<tools>";
constexpr const char* kCalls =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
    "<args-json-object>}\n</tool_call><|im_end|>\n";
constexpr const char* kDefaultSystem = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";

class Qwen : public ChatFormat {
 public:
  std::vector<std::string> tokens() const override { return {"<|im_start|>", "<|im_end|>"}; }

  void render(const Conversation& c, Rendering rendering, bool opens, Rendered& to) const override {
    head(c, to);
    const std::size_t last_query = last_query_of(c.messages);
    for (std::size_t i = 0; i < c.messages.size(); ++i) {
      const Message& m = c.messages[i];
      const auto role_at = [&](std::size_t at) { return c.messages[at].role; };
      switch (m.role) {
        case Role::system:
          if (i == 0) break;  // in the head
          [[fallthrough]];
        case Role::user:
          to.words("<|im_start|>")
              .words(role_name(m.role))
              .words("\n")
              .content(m.content)
              .words("<|im_end|>\n");
          break;
        case Role::assistant:
          assistant(m, rendering, i > last_query, i + 1 == c.messages.size(), to);
          break;
        case Role::tool:
          if (i == 0 || role_at(i - 1) != Role::tool) to.words("<|im_start|>user");
          to.words("\n<tool_response>\n").content(m.content).words("\n</tool_response>");
          if (i + 1 == c.messages.size() || role_at(i + 1) != Role::tool) to.words("<|im_end|>\n");
          break;
      }
    }
    if (opens) to.words("<|im_start|>assistant\n");
  }

 protected:
  /// The system's turn, with the tools.
  virtual void head(const Conversation& c, Rendered& to) const {
    const bool system = c.messages.front().role == Role::system;
    const std::string& content = c.messages.front().content;
    if (c.tools && !c.tools->empty()) {
      to.words("<|im_start|>system\n");
      if (system) to.content(content).words("\n\n");
      tools(*c.tools, to);
    } else if (system) {
      to.words("<|im_start|>system\n").content(content).words("<|im_end|>\n");
    }
  }
  /// `open`: behind the last thing that a user asked; `last`: nothing follows.
  virtual void assistant(const Message& m, Rendering, bool open, bool last, Rendered& to) const = 0;

  static void tools(const std::vector<JsonValue>& list, Rendered& to) {
    to.words(kTools);
    for (const JsonValue& tool : list) to.words("\n").content(python_json(tool));
    to.words(kCalls);
  }
  /// `quoted`: arguments that are a text already are written as a text in JSON all the same.
  static void call(const ToolCall& c, bool quoted, Rendered& to) {
    const bool plain = !quoted && c.arguments.is(JsonValue::Kind::text);
    to.words("<tool_call>\n{\"name\": \"").content(c.name).words("\", \"arguments\": ");
    to.content(plain ? c.arguments.text : python_json(c.arguments)).words("}\n</tool_call>");
  }
  static void calls(const Message& m, bool after_content, Rendered& to) {
    for (const ToolCall& c : m.calls) {
      if (after_content) to.words("\n");
      after_content = true;
      call(c, false, to);
    }
  }

 private:
  /// The last user's turn that is no result of a tool; the last message when there is none.
  static std::size_t last_query_of(const std::vector<Message>& messages) {
    for (std::size_t i = messages.size(); i-- > 0;)
      if (messages[i].role == Role::user && !(messages[i].content.starts_with("<tool_response>") &&
                                              messages[i].content.ends_with("</tool_response>")))
        return i;
    return messages.size() - 1;
  }
};

/// Models that think or not, as they are asked: reasoning is shown behind the last question, and in training
/// everywhere.
class Qwen3 : public Qwen {
 public:
  const char* name() const override { return "qwen3"; }
  std::vector<std::string> tokens() const override {
    return {"<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"};
  }

 protected:
  void assistant(const Message& m, Rendering rendering, bool open, bool last, Rendered& to) const override {
    const Said said = said_of(m);
    to.words("<|im_start|>assistant\n");
    to.begin_assistant();
    if (rendering == Rendering::training || (open && (last || !said.reasoning.empty()))) {
      to.words("<think>\n").content(without_newlines_behind(without_newlines_before(said.reasoning)));
      to.words("\n</think>\n\n").content(without_newlines_before(said.content));
    } else {
      to.content(said.content);
    }
    calls(m, !said.content.empty(), to);
    to.words("<|im_end|>\n");
    to.end_assistant();
  }
};

/// Models of the same family that never think.
class Qwen3Instruct : public Qwen {
 public:
  const char* name() const override { return "qwen3-instruct"; }

 protected:
  void assistant(const Message& m, Rendering, bool, bool, Rendered& to) const override {
    to.words("<|im_start|>assistant\n");
    to.begin_assistant();
    to.content(m.content);
    calls(m, !m.content.empty(), to);
    to.words("<|im_end|>\n");
    to.end_assistant();
  }
};

/// The generation before: a system's turn of its own where the conversation has none, and the newline behind
/// the assistant's head is the assistant's.
class Qwen25 : public Qwen {
 public:
  const char* name() const override { return "qwen2.5"; }

 protected:
  void head(const Conversation& c, Rendered& to) const override {
    to.words("<|im_start|>system\n");
    if (c.messages.front().role == Role::system)
      to.content(c.messages.front().content);
    else
      to.words(kDefaultSystem);
    if (c.tools && !c.tools->empty()) {
      to.words("\n\n");
      tools(*c.tools, to);
    } else {
      to.words("<|im_end|>\n");
    }
  }
  void assistant(const Message& m, Rendering, bool, bool, Rendered& to) const override {
    to.words("<|im_start|>assistant");
    to.begin_assistant();
    if (m.calls.empty() || !m.content.empty()) to.words("\n").content(m.content);
    for (const ToolCall& c : m.calls) {
      to.words("\n");
      call(c, true, to);
    }
    to.words("<|im_end|>\n");
    to.end_assistant();
  }
};

}  // namespace

const std::vector<const ChatFormat*>& qwen_formats() {
  static const Qwen3 thinking;
  static const Qwen3Instruct instruct;
  static const Qwen25 before;
  static const std::vector<const ChatFormat*> all = {&thinking, &instruct, &before};
  return all;
}

}  // namespace annulus
