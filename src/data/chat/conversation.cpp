#include "data/chat/conversation.h"
#include "core/one_line.h"
#include "data/row.h"

namespace annulus {
namespace {

using Kind = JsonValue::Kind;

const std::string& text_of(const JsonValue& v, const std::string& where) {
  if (!v.is(Kind::text)) throw RowError{where + " is " + v.kind_name() + "; it must be a text"};
  return v.text;
}

/// One of a content's parts: {"type": "text", "text": ...}, or a bare text.
const std::string& text_of_part(const JsonValue& part, const std::string& where) {
  if (!part.is(Kind::object)) return text_of(part, where);
  const JsonValue* type = part.find("type");
  if (type == nullptr) throw RowError{where + " has no type; parts of type text are read"};
  if (text_of(*type, where + ".type") != "text")
    throw RowError{where + " is a part of type \"" + one_line(type->text, 40) +
                   "\"; only parts of type text are read"};
  const JsonValue* text = part.find("text");
  if (text == nullptr) throw RowError{where + " has no text"};
  return text_of(*text, where + ".text");
}

/// A text, or a list of parts, which templates that know parts write one behind the other.
std::string content_of(const JsonValue& v, const std::string& where) {
  if (!v.is(Kind::list)) return text_of(v, where);
  std::string joined;
  for (std::size_t i = 0; i < v.items.size(); ++i)
    joined += text_of_part(v.items[i], where + "[" + std::to_string(i) + "]");
  return joined;
}

Message::Role role_of(const std::string& name, const std::string& where) {
  for (const Message::Role r :
       {Message::Role::system, Message::Role::user, Message::Role::assistant, Message::Role::tool})
    if (name == role_name(r)) return r;
  if (name == "human") return Message::Role::user;  // as rows of "conversations" call them
  if (name == "gpt") return Message::Role::assistant;
  throw RowError{where + " has the role \"" + one_line(name, 40) +
                 "\"; known are system, user, assistant and tool"};
}

std::vector<ToolCall> calls_of(const JsonValue& list, const std::string& where) {
  if (!list.is(Kind::list)) throw RowError{where + " is " + list.kind_name() + "; it must be a list"};
  std::vector<ToolCall> out;
  for (const JsonValue& call : list.items) {
    const JsonValue* function = call.find("function");
    if (function == nullptr) function = &call;
    const JsonValue *name = function->find("name"), *arguments = function->find("arguments");
    if (name == nullptr || arguments == nullptr)
      throw RowError{where + " holds a call without a name or without arguments"};
    if (!arguments->is(Kind::object) && !arguments->is(Kind::text))
      throw RowError{where + " has arguments that are " + arguments->kind_name() +
                     "; they must be an object, or a text"};
    ToolCall& made = out.emplace_back();
    if (const JsonValue* type = call.find("type")) made.type = text_of(*type, where + ": the type of a call");
    made.name = text_of(*name, where + ": the name of a call");
    made.arguments = *arguments;
  }
  return out;
}

}  // namespace

const char* role_name(Message::Role role) {
  static constexpr const char* kNames[] = {"system", "user", "assistant", "tool"};
  return kNames[static_cast<int>(role)];
}

std::vector<Message> messages_of(const JsonValue& list, const std::string& what) {
  if (!list.is(Kind::list))
    throw RowError{what + " is " + list.kind_name() + "; it must be a list of messages"};
  if (list.items.empty()) throw RowError{what + " is empty"};
  std::vector<Message> out;
  for (const JsonValue& m : list.items) {
    const std::string where = what + "[" + std::to_string(out.size()) + "]";
    if (!m.is(Kind::object)) throw RowError{where + " is " + m.kind_name() + "; it must be an object"};
    const JsonValue *role = m.find("role"), *content = m.find("content");
    if (role == nullptr) role = m.find("from");
    if (content == nullptr) content = m.find("value");
    if (role == nullptr) throw RowError{where + " has no role"};
    Message message;
    message.role = role_of(text_of(*role, where + ".role"), where);
    const bool assistant = message.role == Message::Role::assistant;
    if (const JsonValue* r = m.find("reasoning_content"); r != nullptr && assistant)
      message.reasoning = text_of(*r, where + ".reasoning_content");
    if (const JsonValue* t = m.find("thinking"); t != nullptr && assistant)
      message.thinking = text_of(*t, where + ".thinking");
    if (const JsonValue* calls = m.find("tool_calls"); calls != nullptr) {
      message.calls = calls_of(*calls, where + ".tool_calls");
      if (!assistant && !message.calls.empty())
        throw RowError{where + " has tool_calls, but only an assistant calls tools"};
    }
    if (content != nullptr)
      message.content = content_of(*content, where + ".content");
    else if (message.calls.empty() && !message.reasoning)
      throw RowError{where + " has no content"};
    out.push_back(std::move(message));
  }
  return out;
}

std::vector<JsonValue> tools_of(const JsonValue& value) {
  const auto objects = [](const JsonValue& list) {
    for (const JsonValue& tool : list.items)
      if (!tool.is(Kind::object))
        throw RowError{std::string("tools holds ") + tool.kind_name() + "; it must hold objects"};
    return list.items;
  };
  if (value.is(Kind::list)) return objects(value);
  if (!value.is(Kind::text))
    throw RowError{std::string("tools is ") + value.kind_name() + "; it must be a list"};
  const JsonValue parsed = parse_value(value.text, "tools");
  if (!parsed.is(Kind::list)) throw RowError{"tools is a text, but no list in JSON"};
  return objects(parsed);
}

}  // namespace annulus
