#include "data/document_reader.h"
#include <algorithm>
#include <fstream>
#include "core/check.h"
#include "core/one_line.h"
#include "data/line_reader.h"
#include "data/row.h"
#include "data/tokenizer/unicode.h"

namespace annulus {
namespace {

class Reader {
 public:
  Reader(const std::vector<Source>& sources, const DataSection& data, TextEncoder* encoder,
         std::int64_t vocabulary)
      : sources_(sources), data_(data), encoder_(encoder), vocabulary_(vocabulary) {
    out_.lines.resize(sources.size());
  }

  Reading read(Share share) {
    for (std::size_t s = 0; s < sources_.size() && !enough(); ++s) {
      const Source& source = sources_[s];
      const std::int64_t from = std::clamp<std::int64_t>(share.from - source.start, 0, source.size);
      const std::int64_t to = std::clamp<std::int64_t>(share.to - source.start, 0, source.size);
      if (source.kind != SourceKind::plain) {
        if (from < to) read_rows(s, from, to);
      } else if (share.from <= source.start && source.start < share.to) {
        read_plain(source);  // one document: whole, where it begins
      }
    }
    return std::move(out_);
  }

 private:
  /// Nothing that follows in this rank's share can matter.
  bool enough() const {
    const bool taken = data_.take > 0 && data_.join == 0 &&
                       static_cast<std::int64_t>(out_.part.lengths.size()) >= data_.take;
    return taken || static_cast<std::int64_t>(out_.bad.size()) > data_.skip_bad;
  }

  void read_plain(const Source& source) {
    std::ifstream in(source.path, std::ios::binary);
    std::string text(static_cast<std::size_t>(source.size), '\0');
    if (!in.read(text.data(), static_cast<std::streamsize>(source.size)))
      environment_error("cannot read " + source.path + "; check that it may be read on every node");
    const bool marked = text.rfind("\xEF\xBB\xBF", 0) == 0;
    const std::int64_t bad = encoder_->takes_bytes() ? -1 : first_invalid_utf8(text);
    if (bad >= 0)
      input_error(source.path + ": byte " + std::to_string(bad) +
                  " is not valid UTF-8; convert the file to UTF-8 (iconv does), or mend it");
    add_text(std::string_view(text).substr(marked ? 3 : 0));
  }

  void read_rows(std::size_t s, std::int64_t from, std::int64_t to) {
    LineReader lines(sources_[s].path, sources_[s].size, from, to);
    while (!enough() && lines.next()) {
      const bool blank = lines.line().find_first_not_of(" \t\r") == std::string_view::npos;
      if (blank && lines.last()) break;
      try {
        if (blank) throw RowError{"is blank; remove the line"};
        add_row(parse_row(lines.line()), sources_[s].kind);
      } catch (const RowError& e) {
        out_.bad.push_back({s, lines.number(), lines.at() + e.byte, documents(), e.why});
      }
    }
    out_.lines[s] = lines.number();
  }

  void add_row(const RowFields& row, SourceKind kind) {
    if (kind == SourceKind::text_rows) {
      if (!row.text) throw RowError{"has no text (" + keys_of(row) + ")"};
      add_text(*row.text);
      return;
    }
    if (!row.input_ids) throw RowError{"has no input_ids (" + keys_of(row) + ")"};
    const RowTokens tokens = tokens_of_row(row, vocabulary_);
    const std::size_t before = out_.part.ids.size();
    out_.part.ids.insert(out_.part.ids.end(), tokens.ids.begin(), tokens.ids.end());
    out_.part.mask.insert(out_.part.mask.end(), tokens.mask.begin(), tokens.mask.end());
    close_document(before);
  }

  static std::string keys_of(const RowFields& row) {
    std::string list;
    for (const std::string& key : row.keys) list += (list.empty() ? "it has " : ", ") + key;
    return list.empty() ? "it is empty" : one_line(list);
  }

  void add_text(std::string_view text) {
    const std::size_t before = out_.part.ids.size();
    if (text.empty()) {
      out_.empty.push_back(documents());
      return;
    }
    encoder_->append(text, out_.part.ids);
    if (out_.part.ids.size() == before) {
      out_.empty.push_back(documents());
      return;
    }
    out_.part.mask.resize(out_.part.ids.size(), 1);
    close_document(before);
  }

  void close_document(std::size_t before) {
    const auto whole = static_cast<std::int64_t>(out_.part.ids.size() - before);
    // Texts that are still to be joined are cut afterwards.
    const bool cuts = data_.max_length > 0 && data_.join == 0;
    const std::int64_t length = cuts ? std::min(whole, data_.max_length) : whole;
    out_.part.ids.resize(before + static_cast<std::size_t>(length));
    out_.part.mask.resize(out_.part.ids.size());
    out_.cut.push_back(whole - length);
    out_.part.lengths.push_back(length);
  }

  std::int64_t documents() const { return static_cast<std::int64_t>(out_.part.lengths.size()); }

  const std::vector<Source>& sources_;
  const DataSection& data_;
  TextEncoder* encoder_;
  std::int64_t vocabulary_;
  Reading out_;
};

}  // namespace

Reading read_share(const std::vector<Source>& sources, Share share, const DataSection& data,
                   TextEncoder* encoder, std::int64_t vocabulary) {
  return Reader(sources, data, encoder, vocabulary).read(share);
}

}  // namespace annulus
