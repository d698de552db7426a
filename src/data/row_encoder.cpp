#include "data/row_encoder.h"
#include <algorithm>
#include "core/check.h"
#include "core/one_line.h"

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
        usage_error("data.join joins texts, but " + s.path + " holds rows of " + name_of(s.kind) + "; set it to 0");
  const bool texts = any(SourceKind::plain) || any(SourceKind::text_rows);
  if (texts) texts_ = std::make_unique<TextEncoder>(data, model, model_path);
}

void RowEncoder::text(std::string_view text, RowTokens& to) {
  if (text.empty()) return;
  texts_->append(text, to.ids);
  to.mask.resize(to.ids.size(), 1);
}

void RowEncoder::row(const RowFields& row, SourceKind kind, RowTokens& to) {
  if (kind == SourceKind::text_rows) {
    if (!row.text) throw RowError{"has no text (" + keys_of(row) + ")"};
    text(*row.text, to);
    return;
  }
  if (!row.input_ids) throw RowError{"has no input_ids (" + keys_of(row) + ")"};
  to = tokens_of_row(row, vocabulary_);
}

}  // namespace annulus
