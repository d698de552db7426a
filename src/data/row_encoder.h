// One document's tokens, from a text or from a row of any format.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>
#include "config/model_config.h"
#include "config/run_config.h"
#include "data/chat/format.h"
#include "data/row.h"
#include "data/source.h"
#include "data/text_encoder.h"

namespace annulus {

/// What is trained is what data.loss_on says (data section of src/README.md). Not for two threads at once.
class RowEncoder {
 public:
  /// Takes what the kinds of the sources need: a tokenizer, a chat format. Fails (input, usage) when data.*
  /// asks for what these sources cannot have, or the model folder has no tokenizer or an unknown chat
  /// template.
  RowEncoder(const std::vector<Source>&, const DataSection&, const ModelConfig&,
             const std::string& model_path);

  /// `to` is empty before. A text without a byte gives no token.
  void text(std::string_view text, RowTokens& to) { piece({.text = text, .behind = {}}, to); }
  void piece(const TextEncoder::Piece&, RowTokens& to);
  /// Throws RowError, also with something in `to`.
  void row(const RowFields&, SourceKind, RowTokens& to);

  /// Where a text may be cut in pieces.
  bool cuts() const { return texts_->cuts(); }
  bool cuts_at(std::string_view text, std::size_t at) { return texts_->cuts_at(text, at); }
  /// Whether any bytes are a text; else only valid UTF-8 is.
  bool takes_bytes() const { return texts_->takes_bytes(); }
  /// The chat format's name, or "none".
  std::string chat_name() const { return chat_ != nullptr ? chat_->name() : "none"; }
  /// For the facts of a token file: the tokenizer's name ("none" when all is tokens already) and the id that
  /// ends a text (-1: none).
  std::string tokenizer_name() const { return texts_ ? texts_->name() : "none"; }
  std::int64_t end_of_text() const { return texts_ ? texts_->end() : -1; }

 private:
  void choose_format(const std::vector<Source>&);
  void check_loss(const std::vector<Source>&) const;
  void chat(const RowFields&, RowTokens& to);
  void pair(const RowFields&, RowTokens& to);
  void pair_of_messages(const RowFields&, RowTokens& to);
  Conversation conversation(const RowFields&, const char* key) const;
  void encode(const Rendered&, bool said_only, RowTokens& to);

  const DataSection data_;
  std::int64_t vocabulary_;
  const ChatFormat* chat_ = nullptr;
  RowTokens prompt_;
  std::unique_ptr<TextEncoder> texts_;  // none: no source holds texts
};

}  // namespace annulus
