// The Llama 3 family: a head between <|start_header_id|> and <|end_header_id|>, the content without white
// space round it, <|eot_id|>.
#include "data/chat/format.h"
#include "data/row.h"

namespace annulus {
namespace {

using Role = Message::Role;

constexpr const char* kAsk =
    "Given the following functions, please respond with a JSON for a function call with its proper arguments "
    "that best answers the given prompt.\n\nRespond in the format {\"name\": function name, \"parameters\": "
    "dictionary of argument name and its value}.Do not use variables.\n\n";

class Llama : public ChatFormat {
 public:
  std::vector<std::string> tokens() const override {
    return {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
  }

 protected:
  static Rendered& head(const char* role, Rendered& to) {
    return to.words("<|start_header_id|>").words(role).words("<|end_header_id|>\n\n");
  }
  static void turn(const Message& m, Rendered& to) {
    head(role_name(m.role), to);
    if (m.role == Role::assistant) to.begin_assistant();
    to.content(python_strip(m.content)).words("<|eot_id|>");
    if (m.role == Role::assistant) to.end_assistant();
  }
  void refuse_reasoning(const Message& m) const {
    if (m.reasoning && !m.reasoning->empty())
      throw RowError{std::string("has reasoning_content, which data.chat=") + name() + " has no words for"};
  }
};

class Llama30 : public Llama {
 public:
  const char* name() const override { return "llama3"; }

  void render(const Conversation& c, Rendering, bool opens, Rendered& to) const override {
    refuse_tools(c, name());
    to.words("<|begin_of_text|>");
    for (const Message& m : c.messages) {
      refuse_reasoning(m);
      turn(m, to);
    }
    if (opens) head("assistant", to);
  }
};

/// Llama 3.1 to 3.3: a system's turn with dates always, tools in the first user's turn, calls as JSON. The
/// date is the one that the templates name; those of 3.2 take the day's where they are given a clock, which
/// would make a run's data depend on the day they were read.
class Llama31 : public Llama {
 public:
  explicit Llama31(const char* name) : name_(name) {}
  const char* name() const override { return name_; }

  void render(const Conversation& c, Rendering, bool opens, Rendered& to) const override {
    const bool system = c.messages.front().role == Role::system;
    to.words("<|begin_of_text|>");
    head("system", to);
    if (c.tools) to.words("Environment: ipython\n");
    to.words("Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n");
    if (system) to.content(python_strip(c.messages.front().content));
    to.words("<|eot_id|>");
    std::size_t next = system ? 1 : 0;
    if (c.tools) {
      if (next == c.messages.size() || c.messages[next].role != Role::user)
        throw RowError{std::string("has tools, but no user's turn first, where data.chat=") + name_ +
                       " puts them"};
      head("user", to).words(kAsk);
      for (const JsonValue& tool : *c.tools) to.content(python_json(tool, 4)).words("\n\n");
      to.content(python_strip(c.messages[next++].content)).words("<|eot_id|>");
    }
    for (; next < c.messages.size(); ++next) say(c.messages[next], to);
    if (opens) head("assistant", to);
  }

 private:
  void say(const Message& m, Rendered& to) const {
    refuse_reasoning(m);
    if (m.role == Role::tool) {
      JsonValue text;
      text.kind = JsonValue::Kind::text;
      text.text = m.content;
      head("ipython", to).content(python_json(text)).words("<|eot_id|>");
    } else if (m.calls.empty()) {
      turn(m, to);
    } else {
      if (m.calls.size() > 1)
        throw RowError{std::string("has two tool calls in one turn, which data.chat=") + name_ +
                       " has no words for"};
      head("assistant", to);
      to.begin_assistant();
      to.words("{\"name\": \"").content(m.calls[0].name).words("\", \"parameters\": ");
      to.content(python_json(m.calls[0].arguments)).words("}<|eot_id|>");
      to.end_assistant();
    }
  }

  const char* name_;
};

}  // namespace

const std::vector<const ChatFormat*>& llama_formats() {
  static const Llama30 first;
  static const Llama31 later("llama3.1"), last("llama3.2");
  static const std::vector<const ChatFormat*> all = {&first, &later, &last};
  return all;
}

}  // namespace annulus
