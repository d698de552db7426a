#include "data/row_encoder.h"
#include <algorithm>
#include "core/check.h"
#include "core/one_line.h"
#include "data/chat/template.h"

namespace annulus {
namespace {

std::string keys_of(const RowFields& row) {
  std::string list;
  for (const std::string& key : row.keys) list += (list.empty() ? "it has " : ", ") + key;
  return list.empty() ? "it is empty" : one_line(list);
}

const char* name_of(SourceKind kind) {
  switch (kind) {
    case SourceKind::token_rows:
      return "input_ids";
    case SourceKind::chat_rows:
      return "messages";
    case SourceKind::pair_rows:
    case SourceKind::chat_pair_rows:
      return "prompt and completion";
    default:
      return "text";
  }
}

}  // namespace

RowEncoder::RowEncoder(const std::vector<Source>& sources, const DataSection& data, const ModelConfig& model,
                       const std::string& model_path)
    : data_(data), vocabulary_(model.V) {
  const auto any = [&](SourceKind kind) {
    return std::any_of(sources.begin(), sources.end(), [&](const Source& s) { return s.kind == kind; });
  };
  if (data.join > 0)
    for (const Source& s : sources)
      if (s.kind != SourceKind::plain && s.kind != SourceKind::text_rows)
        usage_error("data.join joins texts, but " + s.path + " holds rows of " + name_of(s.kind) +
                    "; set it to 0");
  const bool only_tokens = std::all_of(sources.begin(), sources.end(),
                                       [](const Source& s) { return s.kind == SourceKind::token_rows; });
  check_loss(sources);
  if (only_tokens) return;
  texts_ = std::make_unique<TextEncoder>(data, model, model_path);
  if (any(SourceKind::chat_rows) || any(SourceKind::chat_pair_rows)) choose_format(sources);
}

void RowEncoder::choose_format(const std::vector<Source>& sources) {
  if (texts_->tokenizer() == nullptr)
    usage_error(
        "data.tokenizer is bytes, but messages need the special tokens of a tokenizer.json; give its path");
  std::vector<std::string> files;
  for (const Source& s : sources)
    if (s.kind == SourceKind::chat_rows) files.push_back(s.path);
  chat_ = data_.chat == "auto" ? &format_of_folder(texts_->folder(), files) : find_chat_format(data_.chat);
  if (chat_ == nullptr)
    usage_error("data.chat is \"" + data_.chat + "\", which is no chat format; known are auto, " +
                chat_format_names());
  for (const std::string& token : chat_->tokens())
    if (!texts_->tokenizer()->is_added(token))
      input_error(std::string("data.chat=") + chat_->name() + " needs the token " + token +
                  ", which the tokenizer.json in " + texts_->folder() +
                  " does not have; take the model's own tokenizer, or another format");
}

void RowEncoder::check_loss(const std::vector<Source>& sources) const {
  for (const Source& s : sources) {
    const bool fits = data_.loss_on == "auto" || data_.loss_on == "all" || s.kind == SourceKind::token_rows ||
                      (data_.loss_on == "assistant" && s.kind == SourceKind::chat_rows) ||
                      (data_.loss_on == "completion" &&
                       (s.kind == SourceKind::pair_rows || s.kind == SourceKind::chat_pair_rows));
    if (!fits)
      usage_error("data.loss_on is " + data_.loss_on + ", but " + s.path + " holds " + name_of(s.kind) +
                  "; take data.loss_on=auto");
  }
}

void RowEncoder::piece(const TextEncoder::Piece& piece, RowTokens& to) {
  if (piece.text.empty()) return;
  texts_->append(piece, to.ids);
  to.mask.resize(to.ids.size(), 1);
}

void RowEncoder::row(const RowFields& row, SourceKind kind, RowTokens& to) {
  switch (kind) {
    case SourceKind::chat_rows:
      return chat(row, to);
    case SourceKind::pair_rows:
    case SourceKind::chat_pair_rows:
      return pair(row, to);
    case SourceKind::token_rows:
      if (!row.input_ids) throw RowError{"has no input_ids (" + keys_of(row) + ")"};
      to = tokens_of_row(row, vocabulary_, data_.loss_on);
      return;
    default:
      if (!row.text) throw RowError{"has no text (" + keys_of(row) + ")"};
      text(*row.text, to);
  }
}

Conversation RowEncoder::conversation(const RowFields& row, const char* key) const {
  Conversation c;
  const JsonValue* messages = row.value(key);
  if (messages == nullptr) throw RowError{std::string("has no ") + key + " (" + keys_of(row) + ")"};
  c.messages = messages_of(*messages, key);
  if (const JsonValue* tools = row.value("tools")) c.tools = tools_of(*tools);
  if (const JsonValue* extra = row.value("chat_template_kwargs");
      extra != nullptr && !(extra->is(JsonValue::Kind::object) && extra->members.empty()))
    throw RowError{"has chat_template_kwargs, which are not available in this version"};
  return c;
}

void RowEncoder::encode(const Rendered& r, bool said_only, RowTokens& to) {
  const ByteRange all{0, r.text().size()};
  const std::span<const ByteRange> open = data_.allow_special ? std::span(&all, 1) : std::span(r.open());
  texts_->tokenizer()->encode(r.text(), open, said_only ? std::span(r.said()) : std::span<const ByteRange>(),
                              to.ids, to.mask);
  if (!said_only) to.mask.assign(to.ids.size(), 1);
}

void RowEncoder::chat(const RowFields& row, RowTokens& to) {
  const bool said_only = data_.loss_on != "all";
  const Conversation c = conversation(
      row, row.value("messages") == nullptr && row.has("conversations") ? "conversations" : "messages");
  Rendered rendered;
  chat_->render(c, said_only ? Rendering::training : Rendering::model, false, rendered);
  encode(rendered, said_only, to);
}

/// A prompt is what its tokens and those of the whole have in common: where the two texts meet, tokens may
/// join.
void RowEncoder::pair(const RowFields& row, RowTokens& to) {
  const JsonValue *prompt = row.value("prompt"), *completion = row.value("completion");
  if (prompt == nullptr || completion == nullptr)
    throw RowError{std::string("has no ") + (prompt == nullptr ? "prompt" : "completion") + " (" +
                   keys_of(row) + ")"};
  if (prompt->is(JsonValue::Kind::list) && completion->is(JsonValue::Kind::list)) {
    pair_of_messages(row, to);
  } else {
    if (!prompt->is(JsonValue::Kind::text) || !completion->is(JsonValue::Kind::text))
      throw RowError{std::string("has a prompt that is ") + prompt->kind_name() +
                     " and a completion that is " + completion->kind_name() +
                     "; both must be texts, or lists of messages"};
    prompt_.clear();
    texts_->append_open(prompt->text, prompt_.ids);
    texts_->append(prompt->text + completion->text, to.ids);
  }
  to.mask.assign(to.ids.size(), 1);
  if (data_.loss_on == "all") return;
  const auto parting =
      std::mismatch(prompt_.ids.begin(), prompt_.ids.end(), to.ids.begin(), to.ids.end()).second;
  std::fill_n(to.mask.begin(), parting - to.ids.begin(), std::uint8_t{0});
}

void RowEncoder::pair_of_messages(const RowFields& row, RowTokens& to) {
  if (chat_ == nullptr) throw RowError{"holds messages where the first row of the file holds texts"};
  Conversation c = conversation(row, "prompt");
  Rendered prompt, whole;
  chat_->render(c, Rendering::model, true, prompt);
  for (Message& m : messages_of(*row.value("completion"), "completion")) c.messages.push_back(std::move(m));
  chat_->render(c, Rendering::model, false, whole);
  prompt_.clear();
  encode(prompt, false, prompt_);
  encode(whole, false, to);
}

}  // namespace annulus
