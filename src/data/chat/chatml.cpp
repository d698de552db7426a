// ChatML, plain: a head of <|im_start|> and the role, the content, <|im_end|>.
#include "data/chat/format.h"
#include "data/row.h"

namespace annulus {
namespace {

class ChatMl : public ChatFormat {
 public:
  const char* name() const override { return "chatml"; }
  std::vector<std::string> tokens() const override { return {"<|im_start|>", "<|im_end|>"}; }

  void render(const Conversation& c, Rendering, bool opens, Rendered& to) const override {
    refuse_tools(c, name());
    for (const Message& m : c.messages) {
      if (m.reasoning && !m.reasoning->empty())
        throw RowError{"has reasoning_content, which data.chat=chatml has no words for"};
      to.words("<|im_start|>").words(role_name(m.role)).words("\n");
      const bool assistant = m.role == Message::Role::assistant;
      if (assistant) to.begin_assistant();
      to.content(m.content).words("<|im_end|>\n");
      if (assistant) to.end_assistant();
    }
    if (opens) to.words("<|im_start|>assistant\n");
  }
};

}  // namespace

const std::vector<const ChatFormat*>& chatml_formats() {
  static const ChatMl format;
  static const std::vector<const ChatFormat*> all = {&format};
  return all;
}

}  // namespace annulus
