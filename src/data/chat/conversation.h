// A row's messages and tools, checked.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>
#include "data/json_value.h"

namespace annulus {

struct ToolCall {
  std::string type = "function";
  std::string name;
  JsonValue arguments;  // an object, or a text
};

struct Message {
  enum class Role : std::uint8_t { system, user, assistant, tool };
  Role role = Role::user;
  std::string content;                   // empty where an assistant's is null or absent
  std::optional<std::string> reasoning;  // reasoning_content
  std::optional<std::string> thinking;   // the same by another name, which formats with it read instead
  std::vector<ToolCall> calls;
};
const char* role_name(Message::Role);

struct Conversation {
  std::vector<Message> messages;
  std::optional<std::vector<JsonValue>> tools;
};

/// A list of messages as transformers takes them, {"role", "content", ...}, or {"from", "value"}. A content
/// is a text, or a list of parts that are texts, which are joined. Only an assistant's content may be
/// missing, and only where it calls tools or reasons. `what`: the key, for messages. Throws RowError.
std::vector<Message> messages_of(const JsonValue&, const std::string& what);
/// A list of objects, or a text that is one in JSON. Throws RowError.
std::vector<JsonValue> tools_of(const JsonValue&);

}  // namespace annulus
