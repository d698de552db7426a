// Chat formats: a conversation as the text that a model was trained on, and which part of it is the
// assistant's. Each family has a file of its own; none asks for a model's name.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>
#include "data/chat/conversation.h"
#include "data/tokenizer/tokenizer.h"

namespace annulus {

/// A conversation's text. Added tokens count in the format's own words alone, so that nothing that people or
/// tools wrote can spell one.
class Rendered {
 public:
  Rendered& words(std::string_view);    // the format's
  Rendered& content(std::string_view);  // the row's
  /// What is added between the two is what the assistant says.
  void begin_assistant() { begin_ = text_.size(); }
  void end_assistant() { said_.push_back({begin_, text_.size()}); }

  const std::string& text() const { return text_; }
  const std::vector<ByteRange>& open() const { return open_; }  // where added tokens count
  const std::vector<ByteRange>& said() const { return said_; }  // by assistants

 private:
  std::string text_;
  std::vector<ByteRange> open_, said_;
  std::size_t begin_ = 0;
};

/// model: as the model's own template; training: as TRL's training template for assistant-only loss, which
/// renders every turn in the same way wherever it stands. They differ for formats with reasoning.
enum class Rendering : std::uint8_t { model, training };

class ChatFormat {
 public:
  virtual ~ChatFormat() = default;
  virtual const char* name() const = 0;
  /// Added tokens without which the format cannot be written.
  virtual std::vector<std::string> tokens() const = 0;
  /// Throws RowError for what the format cannot say. `opens`: ends with the head of an assistant's turn, as a
  /// prompt does.
  virtual void render(const Conversation&, Rendering, bool opens, Rendered&) const = 0;
};

/// Null when there is none of this name.
const ChatFormat* find_chat_format(std::string_view name);
/// "chatml, qwen3, ...".
std::string chat_format_names();

// One a family.
const std::vector<const ChatFormat*>& chatml_formats();
const std::vector<const ChatFormat*>& deepseek_formats();
const std::vector<const ChatFormat*>& glm_formats();
const std::vector<const ChatFormat*>& harmony_formats();
const std::vector<const ChatFormat*>& llama_formats();
const std::vector<const ChatFormat*>& qwen_formats();

/// What an assistant thought and what it said: given apart, or in one text with <think> and </think>.
struct Said {
  std::string reasoning, content;
};
Said said_of(const Message&);

/// Throws RowError when the conversation has tools, calls or results, which the format cannot say.
void refuse_tools(const Conversation&, const char* format);

}  // namespace annulus
