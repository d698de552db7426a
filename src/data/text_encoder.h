// Documents of text to tokens, as data.tokenizer says.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include "config/model_config.h"
#include "config/run_config.h"
#include "data/tokenizer/tokenizer.h"

namespace annulus {

/// A text's tokens: those of a tokenizer.json, with what it puts round a text, or of the bytes (ids 0 to
/// 255). The text ends with the model's first end-of-text id, once, where there is one. Not for two threads
/// at once.
class TextEncoder {
 public:
  /// Reads the tokenizer's file: data.tokenizer, or for auto that of the model's folder. Fails (input) when
  /// it is not there, is not supported, or has ids beyond the model's vocabulary. A model without a
  /// vocabulary (V = 0) stands for no model.
  TextEncoder(const DataSection&, const ModelConfig&, const std::string& model_path);
  void append(std::string_view text, std::vector<std::int32_t>& to);
  /// The same without the end-of-text id.
  void append_open(std::string_view text, std::vector<std::int32_t>& to);

  /// A text of which this is a piece, cut where cuts_at() allows it: appends what its tokens are in the
  /// whole.
  struct Piece {
    std::string_view text, behind;  // the character that follows it in memory too; none behind the last piece
    bool first = true;
  };
  void append(const Piece&, std::vector<std::int32_t>& to);
  /// As Tokenizer has them; bytes are cut before any line.
  bool cuts() const { return tokenizer_ == nullptr || tokenizer_->cuts(allow_special_); }
  bool cuts_at(std::string_view text, std::size_t at) {
    return tokenizer_ == nullptr || tokenizer_->cuts_at(text, at, allow_special_);
  }

  /// Whether any bytes are a text; else only valid UTF-8 is.
  bool takes_bytes() const { return tokenizer_ == nullptr; }
  std::int64_t end() const { return end_; }  // the end-of-text id, or -1
  /// For the facts of a token file.
  const std::string& name() const { return name_; }
  /// Null: bytes.
  Tokenizer* tokenizer() const { return tokenizer_.get(); }
  /// Of tokenizer.json; empty: bytes.
  const std::string& folder() const { return folder_; }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;  // none: bytes
  bool allow_special_;
  std::vector<std::int32_t> behind_;
  std::int64_t end_ = -1;
  std::string name_ = "bytes", folder_;
};

}  // namespace annulus
