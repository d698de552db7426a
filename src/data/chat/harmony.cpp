// GPT-OSS's harmony: every turn names its channel; reasoning and calls have channels of their own.
#include <algorithm>
#include "data/chat/format.h"
#include "data/chat/typescript.h"
#include "data/row.h"

namespace annulus {
namespace {

using Role = Message::Role;

// The template puts the day's date here, which would make a run's data depend on the day they were read: this
// is the day that the model was released.
constexpr const char* kSystem =
    "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\nCurrent date: "
    "2025-08-05\n\nReasoning: medium\n\n# Valid channels: analysis, commentary, final. Channel must be "
    "included for every message.";

JsonValue as_json(const std::string& text) {
  JsonValue v;
  v.kind = JsonValue::Kind::text;
  v.text = text;
  return v;
}

class GptOss : public ChatFormat {
 public:
  const char* name() const override { return "gpt-oss"; }
  std::vector<std::string> tokens() const override {
    return {"<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|call|>", "<|return|>"};
  }

  void render(const Conversation& c, Rendering, bool opens, Rendered& to) const override {
    const bool system = c.messages.front().role == Role::system, tools = c.tools && !c.tools->empty();
    to.words("<|start|>system<|message|>").words(kSystem);
    if (tools) to.words("\nCalls to these tools must go to the commentary channel: 'functions'.");
    to.words("<|end|>");
    const std::string instructions = system ? c.messages.front().content : "";
    if (!instructions.empty() || tools) {
      to.words("<|start|>developer<|message|>");
      if (!instructions.empty()) to.words("# Instructions\n\n").content(instructions).words("\n\n");
      if (tools) to.words("# Tools\n\n").content(typescript_tools(*c.tools));
      to.words("<|end|>");
    }
    const std::string* called = nullptr;  // whose result a tool's turn is
    for (auto m = c.messages.begin() + system; m != c.messages.end(); ++m) {
      switch (m->role) {
        case Role::system:
          throw RowError{"has a system's turn behind the first, which data.chat=gpt-oss has no words for"};
        case Role::user:
          to.words("<|start|>user<|message|>").content(m->content).words("<|end|>");
          break;
        case Role::tool:
          if (called == nullptr)
            throw RowError{"has a tool's result without a call, which data.chat=gpt-oss has no words for"};
          to.words("<|start|>functions.")
              .content(*called)
              .words(" to=assistant<|channel|>commentary<|message|>");
          to.content(python_json(as_json(m->content))).words("<|end|>");
          break;
        case Role::assistant:
          check(*m);
          to.begin_assistant();
          if (!m->calls.empty()) {
            call(*m, answers(m + 1, c.messages.end()), to);
            called = &m->calls[0].name;
          } else {
            const bool last = m + 1 == c.messages.end() && !opens;
            if (last && m->thinking) think(*m->thinking, to);
            to.words("<|start|>assistant<|channel|>final<|message|>").content(m->content);
            to.words(last ? "<|return|>" : "<|end|>");
            called = nullptr;
          }
          to.end_assistant();
          break;
      }
    }
    if (opens) to.words("<|start|>assistant");
  }

 private:
  using At = std::vector<Message>::const_iterator;

  static void check(const Message& m) {
    if (m.reasoning && !m.reasoning->empty())
      throw RowError{"has reasoning_content, which data.chat=gpt-oss reads as thinking; rename the key"};
    for (const std::string* text : {&m.content, m.thinking ? &*m.thinking : &m.content})
      for (const char* head : {"<|channel|>analysis<|message|>", "<|channel|>final<|message|>"})
        if (text->find(head) != std::string::npos)
          throw RowError{std::string("spells ") + head +
                         " in a message; put reasoning into its thinking and the answer into its content"};
    if (m.calls.size() > 1)
      throw RowError{"has two tool calls in one turn, which data.chat=gpt-oss has no words for"};
  }
  /// Whether an assistant says something without a call: then what was thought before is dropped.
  static bool answers(At from, At to) {
    return std::any_of(from, to,
                       [](const Message& m) { return m.role == Role::assistant && m.calls.empty(); });
  }
  static void think(const std::string& text, Rendered& to) {
    to.words("<|start|>assistant<|channel|>analysis<|message|>").content(text).words("<|end|>");
  }
  static void call(const Message& m, bool answered, Rendered& to) {
    const std::string thought = m.thinking.value_or("");
    if (!m.content.empty() && !thought.empty())
      throw RowError{
          "has both content and thinking in a turn that calls a tool, where data.chat=gpt-oss has "
          "words for one"};
    const std::string& before = m.content.empty() ? thought : m.content;
    if (!before.empty() && !answered) think(before, to);
    to.words("<|start|>assistant to=functions.").content(m.calls[0].name);
    to.words("<|channel|>commentary json<|message|>").content(python_json(m.calls[0].arguments));
    to.words("<|call|>");
  }
};

}  // namespace

const std::vector<const ChatFormat*>& harmony_formats() {
  static const GptOss format;
  static const std::vector<const ChatFormat*> all = {&format};
  return all;
}

}  // namespace annulus
