#include "data/chat/typescript.h"
#include <algorithm>
#include <cstdlib>
#include "data/row.h"

namespace annulus {
namespace {

using Kind = JsonValue::Kind;

/// A member, also one that is null; null for what is no object.
const JsonValue* member(const JsonValue& v, std::string_view key) {
  for (const auto& [name, value] : v.members)
    if (name == key) return &value;
  return nullptr;
}

/// As Python takes a value for a condition.
bool truthy(const JsonValue* v) {
  if (v == nullptr) return false;
  switch (v->kind) {
    case Kind::null:
      return false;
    case Kind::truth:
      return v->truth;
    case Kind::number:
      return std::strtod(v->text.c_str(), nullptr) != 0;
    case Kind::text:
      return !v->text.empty();
    case Kind::list:
      return !v->items.empty();
    case Kind::object:
      return !v->members.empty();
  }
  return false;
}

bool is_text(const JsonValue* v, std::string_view text) {
  return v != nullptr && v->is(Kind::text) && v->text == text;
}

[[noreturn]] void refuse(const std::string& what) {
  throw RowError{"has a tool " + what + ", which data.chat=gpt-oss has no words for"};
}

const std::string& text_of(const JsonValue* v, const char* what) {
  if (v == nullptr) refuse(std::string("without a ") + what);
  if (!v->is(Kind::text)) refuse(std::string("whose ") + what + " is " + v->kind_name());
  return v->text;
}

/// Python's str().
std::string word_of(const JsonValue& v) {
  if (v.is(Kind::null)) return "None";
  if (v.is(Kind::truth)) return v.truth ? "True" : "False";
  if (v.is(Kind::list) || v.is(Kind::object))
    refuse(std::string("whose enum or type holds ") + v.kind_name());
  return v.text;
}

std::string joined(const JsonValue& list, const char* between) {
  if (!list.is(Kind::list)) refuse(std::string("whose enum is ") + list.kind_name());
  std::string out;
  for (const JsonValue& v : list.items)
    out.append(&v == &list.items.front() ? "" : between).append(word_of(v));
  return out;
}

/// Whether an object's schema requires a property.
bool requires_it(const JsonValue& schema, const std::string& property) {
  const JsonValue* list = member(schema, "required");
  if (!truthy(list)) return false;
  if (!list->is(Kind::list)) refuse(std::string("whose required is ") + list->kind_name());
  return std::any_of(list->items.begin(), list->items.end(),
                     [&](const JsonValue& name) { return is_text(&name, property); });
}

const JsonValue& properties_of(const JsonValue& schema) {
  const JsonValue* properties = member(schema, "properties");
  if (!properties->is(Kind::object)) refuse(std::string("whose properties are ") + properties->kind_name());
  return *properties;
}

std::string type_of(const JsonValue& schema);

std::size_t characters(const std::string& utf8) {
  return static_cast<std::size_t>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string list_type(const JsonValue& schema) {
  constexpr std::size_t kLongest = 50;  // of an item's type
  const JsonValue* items = member(schema, "items");
  if (!truthy(items)) return "any[]";
  const std::string type = is_text(member(*items, "type"), "string") ? "string" : type_of(*items);
  return type == "object | object" || characters(type) > kLongest ? "any[]" : type + "[]";
}

std::string union_type(const JsonValue& variants) {
  if (!variants.is(Kind::list)) refuse(std::string("whose oneOf is ") + variants.kind_name());
  std::string out;
  for (const JsonValue& v : variants.items) {
    out += type_of(v);
    if (const JsonValue* about = member(v, "description"); truthy(about))
      out.append("// ").append(text_of(about, "description"));
    if (const JsonValue* by_default = member(v, "default"); by_default != nullptr)
      out.append(20, ' ').append("// default: ").append(python_json(*by_default));
    if (&v != &variants.items.back()) out += " | \n";
  }
  return out;
}

std::string object_type(const JsonValue& schema) {
  const JsonValue& properties = properties_of(schema);
  std::string out = "{\n";
  for (const auto& [name, property] : properties.members) {
    out.append(name).append(requires_it(schema, name) ? "" : "?").append(": \n").append(16, ' ');
    out.append(type_of(property));
    if (&property != &properties.members.back().second) out += ", ";
  }
  return out + "}";
}

std::string type_of(const JsonValue& schema) {
  const JsonValue* type = member(schema, "type");
  const char* nullable = truthy(member(schema, "nullable")) ? " | null" : "";
  if (is_text(type, "array")) return list_type(schema) + nullable;
  if (type != nullptr && type->is(Kind::list) && !type->items.empty()) return joined(*type, " | ");
  if (const JsonValue* variants = member(schema, "oneOf"); truthy(variants)) return union_type(*variants);
  if (is_text(type, "string")) {
    const JsonValue* values = member(schema, "enum");
    if (!truthy(values)) return std::string("string") + nullable;
    return std::string("\"").append(joined(*values, "\" | \"")).append("\"");
  }
  if (is_text(type, "number") || is_text(type, "integer")) return "number";
  if (is_text(type, "boolean")) return "boolean";
  if (!is_text(type, "object")) return "any";
  return truthy(member(schema, "properties")) ? object_type(schema) : "object";
}

std::string parameter(const JsonValue& schema, const std::string& name, const JsonValue& property) {
  std::string out;
  if (const JsonValue* about = member(property, "description"); truthy(about))
    out.append("// ").append(text_of(about, "description")).append("\n");
  out.append(name).append(requires_it(schema, name) ? "" : "?").append(": ").append(type_of(property));
  if (const JsonValue* by_default = member(property, "default"); by_default != nullptr) {
    if (truthy(member(property, "enum")))
      out.append(", // default: ").append(text_of(by_default, "default"));
    else if (truthy(member(property, "oneOf")))
      out.append("// default: ").append(text_of(by_default, "default"));
    else
      out.append(", // default: ").append(python_json(*by_default));
  }
  return out + ",\n";
}

}  // namespace

std::string typescript_tools(const std::vector<JsonValue>& tools) {
  std::string out = "## functions\n\nnamespace functions {\n\n";
  for (const JsonValue& tool : tools) {
    const JsonValue* function = member(tool, "function");
    if (function == nullptr) refuse("without a function");
    out.append("// ").append(text_of(member(*function, "description"), "description")).append("\ntype ");
    out.append(text_of(member(*function, "name"), "name")).append(" = ");
    const JsonValue* schema = member(*function, "parameters");
    if (schema != nullptr && truthy(member(*schema, "properties"))) {
      out += "(_: {\n";
      for (const auto& [name, property] : properties_of(*schema).members)
        out += parameter(*schema, name, property);
      out += "}) => any;\n\n";
    } else {
      out += "() => any;\n\n";
    }
  }
  return out + "} // namespace functions";
}

}  // namespace annulus
