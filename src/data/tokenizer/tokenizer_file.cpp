#include "data/tokenizer/tokenizer_file.h"
#include <zlib.h>
#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <unordered_set>
#include "config/json_read.h"
#include "core/check.h"
#include "core/one_line.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/pattern.h"

namespace annulus {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
constexpr int kDepth = 32;
constexpr std::size_t kBytes = std::size_t{256} << 20;
constexpr std::int64_t kLargestId = (std::int64_t{1} << 22) - 1;
constexpr const char*
    kByteLevelExpression =  // what ByteLevel cuts with where the file does not say otherwise
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string cut(const std::string& text) {
  return one_line(text, 60);
}

[[noreturn]] void unsupported(const std::string& where, const std::string& what) {
  input_error(where + ": " + what + " is not supported; give rows of input_ids (data.format=tokens) instead");
}

[[noreturn]] void damaged(const std::string& where, const std::string& what) {
  input_error(where + ": " + what + "; mend or fetch the file again");
}

/// A file with a vocabulary of hundreds of thousands of keys: read_json() looks at each key too often for it.
json parse_large(const std::string& text, const std::string& where) {
  if (text.size() > kBytes)
    damaged(where, "is larger than any tokenizer (" + std::to_string(text.size()) + " bytes)");
  std::vector<std::unordered_set<std::string>> open;
  const auto guard = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > kDepth) damaged(where, "is nested deeper than " + std::to_string(kDepth) + " levels");
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second)
      damaged(where, "has the key \"" + cut(value.get<std::string>()) + "\" twice");
    return true;
  };
  try {
    return json::parse(text, guard);
  } catch (const json::parse_error& e) {
    damaged(where, "is not JSON at byte " + std::to_string(e.byte > 0 ? e.byte - 1 : 0));
  } catch (const json::out_of_range&) {
    damaged(where, "holds a number that no 64-bit type can hold");
  }
}

class Interpreter {
 public:
  Interpreter(json document, std::string where) : where_(std::move(where)) {
    if (!document.is_object()) damaged(where_, "is no object in braces");
    const auto model = document.find("model");
    if (model == document.end() || !model->is_object()) damaged(where_, "has no model");
    for (const char* key : {"vocab", "merges"})
      if (model->find(key) == model->end())
        unsupported(where_, std::string("a model without ") + key + " (only byte-level BPE has both)");
    vocabulary_ = std::move(model->at("vocab"));
    merges_ = std::move(model->at("merges"));
    model->erase("vocab");
    model->erase("merges");
    rest_ = document;
  }

  TokenizerFile run() {
    const JsonObject file(rest_, where_);
    model(file.object("model"));
    if (file.has("normalizer")) normalizer(file.object("normalizer"));
    if (!file.has("pre_tokenizer")) unsupported(where_, "a file without a pre_tokenizer");
    pre_tokenizer(file.object("pre_tokenizer"));
    if (!byte_level_) unsupported(where_, "a pre_tokenizer without ByteLevel");
    if (!file.has("decoder")) unsupported(where_, "a file without a decoder");
    decoder(file.object("decoder"));
    if (file.has("added_tokens")) added_tokens(file.raw("added_tokens"));
    if (file.has("post_processor")) post_processor(file.object("post_processor"));
    // truncation and padding are what the last caller of the Python library wanted, not part of the model.
    return std::move(out_);
  }

 private:
  void model(const JsonObject& m) {
    const std::string type = m.text_or("type", "BPE");
    if (type != "BPE") unsupported(m.where(), "the type " + cut(type) + " (only BPE is)");
    if (m.number_or("dropout", 0, 0, 1) != 0) unsupported(m.where(), "dropout");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (!m.text_or(key, "").empty()) unsupported(m.where(), key);
    out_.ignore_merges = m.truth_or("ignore_merges", false);
    // unk_token, fuse_unk and byte_fallback tell what becomes of a character without a token: there is none.
    vocabulary();
    bytes();
    merges();
  }

  static std::optional<std::int64_t> whole(const json& v) {
    if (!v.is_number_integer()) return std::nullopt;
    if (v.is_number_unsigned() && v.get<std::uint64_t>() > INT64_MAX) return std::nullopt;
    return v.get<std::int64_t>();
  }

  void vocabulary() {
    const std::string where = where_ + ": model: vocab";
    if (!vocabulary_.is_object() || vocabulary_.empty()) damaged(where, "is no object with tokens");
    out_.vocabulary.reserve(vocabulary_.size());
    for (const auto& [token, value] : vocabulary_.items()) {
      const auto id = whole(value);
      if (!id || *id < 0 || *id > kLargestId) damaged(where, "\"" + cut(token) + "\" has no usable id");
      if (!ids_.insert(static_cast<std::int32_t>(*id)).second)
        damaged(where, "two tokens have the id " + std::to_string(*id));
      out_.vocabulary.emplace(token, static_cast<std::int32_t>(*id));
    }
    vocabulary_ = nullptr;
  }

  void bytes() {
    for (int b = 0; b < 256; ++b) {
      const auto at = out_.vocabulary.find(character_of_byte(static_cast<std::uint8_t>(b)));
      const bool in_utf8 = b < 0xC0 || (b > 0xC1 && b < 0xF5);
      if (at == out_.vocabulary.end() && in_utf8)
        unsupported(where_ + ": model: vocab", "having no token for the byte " + std::to_string(b));
      out_.bytes[static_cast<std::size_t>(b)] = at == out_.vocabulary.end() ? -1 : at->second;
    }
  }

  void merges() {
    const std::string where = where_ + ": model: merges";
    if (!merges_.is_array()) damaged(where, "is no list");
    out_.merges.reserve(merges_.size());
    std::string left, right;
    for (std::size_t i = 0; i < merges_.size(); ++i) {
      const json& m = merges_[i];
      const std::string name = "merge " + std::to_string(i);
      if (m.is_string()) {
        const auto& both = m.get_ref<const std::string&>();
        if (both.rfind("#version", 0) == 0) continue;
        const std::size_t space = both.find(' ');
        if (space == std::string::npos || both.find(' ', space + 1) != std::string::npos)
          damaged(where, name + " is not two tokens with a space between");
        left = both.substr(0, space);
        right = both.substr(space + 1);
      } else if (m.is_array() && m.size() == 2 && m[0].is_string() && m[1].is_string()) {
        left = m[0].get_ref<const std::string&>();
        right = m[1].get_ref<const std::string&>();
      } else {
        damaged(where, name + " is neither a text nor a list of two");
      }
      const auto id = [&](const std::string& token) {
        const auto at = out_.vocabulary.find(token);
        if (at == out_.vocabulary.end())
          damaged(where, name + " has \"" + cut(token) + "\", which is not in the vocabulary");
        return at->second;
      };
      out_.merges.push_back({id(left), id(right), id(left + right)});
    }
    merges_ = nullptr;
  }

  /// Runs `each` on the objects of a list.
  template <class Each>
  static void members(const JsonObject& o, const char* key, Each each) {
    const ordered_json& list = o.raw(key);
    if (!list.is_array()) damaged(o.where(), std::string(key) + " is no list");
    for (std::size_t i = 0; i < list.size(); ++i)
      each(JsonObject(list[i], o.where() + ": " + key + " " + std::to_string(i)));
  }

  void normalizer(const JsonObject& n) {
    const std::string type = n.text("type");
    if (type == "Sequence")
      members(n, "normalizers", [this](const JsonObject& each) { normalizer(each); });
    else if (type == "NFC")
      out_.nfc = true;
    else
      unsupported(n.where(), "the type " + cut(type) + " (NFC and Sequence are)");
  }

  void pre_tokenizer(const JsonObject& p) {
    const std::string type = p.text("type");
    if (byte_level_) unsupported(p.where(), cut(type) + " behind ByteLevel");
    if (type == "Sequence") {
      members(p, "pretokenizers", [this](const JsonObject& each) { pre_tokenizer(each); });
    } else if (type == "Split") {
      split(p);
    } else if (type == "Digits") {
      out_.splits.push_back({p.truth("individual_digits") ? "\\p{N}" : "\\p{N}+"});
    } else if (type == "ByteLevel") {
      if (p.truth("add_prefix_space")) unsupported(p.where(), "add_prefix_space");
      if (p.truth_or("use_regex", true)) out_.splits.push_back({kByteLevelExpression});
      byte_level_ = true;
    } else {
      unsupported(p.where(), "the type " + cut(type) + " (Sequence, Split, Digits and ByteLevel are)");
    }
  }

  void split(const JsonObject& p) {
    const JsonObject pattern = p.object("pattern");
    SplitStep step;
    step.expression = pattern.has("Regex") ? pattern.text("Regex") : quote_expression(pattern.text("String"));
    const std::string behavior = p.text("behavior");
    const bool inverted = p.truth_or("invert", false);
    if (behavior == "Removed")
      (inverted ? step.keep_gaps : step.keep_matches) = false;
    else if (behavior != "Isolated")
      unsupported(p.where(), "the behavior " + cut(behavior) + " (Isolated and Removed are)");
    out_.splits.push_back(step);
  }

  void decoder(const JsonObject& d) {
    const std::string type = d.text("type");
    if (type == "Sequence")
      members(d, "decoders", [this](const JsonObject& each) { decoder(each); });
    else if (type != "ByteLevel")
      unsupported(d.where(), "the type " + cut(type) + " (ByteLevel is)");
  }

  void added_tokens(const ordered_json& list) {
    if (!list.is_array()) damaged(where_, "added_tokens is no list");
    std::unordered_set<std::string> contents;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const JsonObject t(list[i], where_ + ": added_tokens " + std::to_string(i));
      for (const char* key : {"single_word", "lstrip", "rstrip"})
        if (t.truth_or(key, false)) unsupported(t.where(), key);
      AddedToken token{t.text("content"), static_cast<std::int32_t>(t.whole("id", 0, kLargestId)),
                       t.truth_or("normalized", !t.truth_or("special", false))};
      if (token.content.empty()) damaged(t.where(), "content is empty");
      const auto known = out_.vocabulary.find(token.content);
      const bool has_other_id = known != out_.vocabulary.end() && known->second != token.id;
      const bool takes_an_id = known == out_.vocabulary.end() && !ids_.insert(token.id).second;
      if (has_other_id || takes_an_id || !contents.insert(token.content).second)
        damaged(t.where(), "\"" + cut(token.content) + "\" or its id " + std::to_string(token.id) +
                               " is there already with another");
      out_.added.push_back(std::move(token));
    }
  }

  void post_processor(const JsonObject& p) {
    const std::string type = p.text("type");
    if (type == "Sequence")
      members(p, "processors", [this](const JsonObject& each) { post_processor(each); });
    else if (type == "TemplateProcessing")
      frame(p);
    else if (type != "ByteLevel")  // which changes offsets alone
      unsupported(p.where(), "the type " + cut(type) + " (Sequence, TemplateProcessing and ByteLevel are)");
  }

  /// What stands before and after a single text.
  void frame(const JsonObject& p) {
    if (framed_) unsupported(p.where(), "a second TemplateProcessing");
    framed_ = true;
    bool behind = false;
    members(p, "single", [&](const JsonObject& piece) {
      if (piece.has("Sequence")) {
        if (behind) unsupported(piece.where(), "the text twice");
        behind = true;
        return;
      }
      const std::string name = piece.object("SpecialToken").text("id");
      const JsonObject tokens = p.object("special_tokens");
      if (!tokens.has(name)) damaged(tokens.where(), "lacks \"" + cut(name) + "\"");
      const JsonObject token(tokens.raw(name), tokens.where() + ": " + cut(name));
      const ordered_json& ids = token.raw("ids");
      if (!ids.is_array()) damaged(token.where(), "ids is no list");
      for (const auto& id : ids) {
        const bool known = id.is_number_unsigned() && id.get<std::uint64_t>() <= kLargestId &&
                           ids_.contains(id.get<std::int32_t>());
        if (!known) damaged(token.where(), "ids holds something that is no token's id");
        (behind ? out_.after : out_.before).push_back(id.get<std::int32_t>());
      }
    });
    if (!behind) unsupported(p.where(), "a frame without the text");
  }

  std::string where_;
  json vocabulary_, merges_;
  ordered_json rest_;
  TokenizerFile out_;
  std::unordered_set<std::int32_t> ids_;  // of all tokens so far
  bool byte_level_ = false, framed_ = false;
};

}  // namespace

TokenizerFile parse_tokenizer(const std::string& text, const std::string& where) {
  TokenizerFile out = Interpreter(parse_large(text, where), where).run();
  out.digest = static_cast<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
  return out;
}

TokenizerFile read_tokenizer_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf()))
    environment_error("cannot read " + path + "; check that it is a file that may be read on every node");
  return parse_tokenizer(text.str(), path);
}

}  // namespace annulus
