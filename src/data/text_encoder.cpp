#include "data/text_encoder.h"
#include <filesystem>
#include <iomanip>
#include <sstream>
#include "core/check.h"

namespace annulus {
namespace {

std::string tokenizer_path(const DataSection& data, const std::string& model_path) {
  const std::string path = data.tokenizer == "auto" ? model_path + "/tokenizer.json" : data.tokenizer;
  if (std::filesystem::is_regular_file(path)) return path;
  if (data.tokenizer == "auto")
    input_error(
        "the model " + model_path +
        " has no tokenizer.json to read texts with; give data.tokenizer=PATH of one, rows of input_ids "
        "(data.format=tokens), or data.tokenizer=bytes for a model of bytes");
  input_error("data.tokenizer=" + path +
              " is no file; give the path of a tokenizer.json, or data.tokenizer=bytes for a model of bytes");
}

void check_vocabulary(std::int64_t ids, const ModelConfig& model, const std::string& tokenizer,
                      const std::string& model_path) {
  if (model.V > 0 && model.V < ids)
    input_error(tokenizer + " needs " + std::to_string(ids) + " ids and the model " + model_path +
                " has a vocabulary of " + std::to_string(model.V) +
                "; take the model's own tokenizer, or a model with a larger vocabulary");
}

}  // namespace

TextEncoder::TextEncoder(const DataSection& data, const ModelConfig& model, const std::string& model_path)
    : allow_special_(data.allow_special) {
  std::int64_t least_end = 256;  // an end of text that is also a byte ends nothing
  if (data.tokenizer == "bytes") {
    check_vocabulary(256, model, "data.tokenizer=bytes", model_path);
  } else {
    const std::string path = tokenizer_path(data, model_path);
    const TokenizerFile file = read_tokenizer_file(path);
    tokenizer_ = std::make_unique<Tokenizer>(file, path);
    check_vocabulary(tokenizer_->ids(), model, path, model_path);
    std::ostringstream name;
    name << "tokenizer.json of CRC-32 " << std::hex << std::setw(8) << std::setfill('0') << file.digest;
    name_ = name.str();
    folder_ = data.tokenizer == "auto" ? model_path : std::filesystem::path(path).parent_path().string();
    if (folder_.empty()) folder_.push_back('.');
    least_end = 0;
  }
  if (!model.eos.empty() && model.eos.front() >= least_end && model.eos.front() < model.V)
    end_ = model.eos.front();
}

void TextEncoder::append(std::string_view text, std::vector<std::int32_t>& to) {
  append(Piece{.text = text, .behind = {}}, to);
}

void TextEncoder::append(const Piece& piece, std::vector<std::int32_t>& to) {
  const std::size_t begin = to.size();
  if (tokenizer_ == nullptr) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(piece.text.data());
    to.insert(to.end(), bytes, bytes + piece.text.size());
  } else {
    if (piece.first) to.insert(to.end(), tokenizer_->before().begin(), tokenizer_->before().end());
    if (piece.behind.empty()) {
      tokenizer_->encode(piece.text, allow_special_, to);
      to.insert(to.end(), tokenizer_->after().begin(), tokenizer_->after().end());
    } else {
      const std::string_view more(piece.text.data(), piece.text.size() + piece.behind.size());
      tokenizer_->encode(more, allow_special_, to);
      behind_.clear();
      tokenizer_->encode(piece.behind, allow_special_, behind_);
      to.resize(to.size() - behind_.size());
    }
  }
  if (!piece.behind.empty()) return;
  // Only a control token that the text spells, or the file's own, can be there already.
  const bool ended = tokenizer_ != nullptr && to.size() > begin && to.back() == end_;
  if (end_ >= 0 && !ended) to.push_back(static_cast<std::int32_t>(end_));
}

void TextEncoder::append_open(std::string_view text, std::vector<std::int32_t>& to) {
  if (tokenizer_ == nullptr) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    to.insert(to.end(), bytes, bytes + text.size());
    return;
  }
  to.insert(to.end(), tokenizer_->before().begin(), tokenizer_->before().end());
  tokenizer_->encode(text, allow_special_, to);
  to.insert(to.end(), tokenizer_->after().begin(), tokenizer_->after().end());
}

}  // namespace annulus
