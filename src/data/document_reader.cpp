#include "data/document_reader.h"
#include <algorithm>
#include "core/check.h"
#include "data/line_reader.h"
#include "data/row.h"
#include "data/text_pieces.h"
#include "data/tokenizer/unicode.h"

namespace annulus {
namespace {

class Reader {
 public:
  Reader(const std::vector<Source>& sources, const DataSection& data, RowEncoder& encoder, TokenSpool& spool,
         const Told& told)
      : sources_(sources), data_(data), encoder_(encoder), spool_(spool), told_(told) {
    out_.lines.resize(sources.size());
  }

  Reading read(Share share) {
    share_ = share;
    for (std::size_t s = 0; s < sources_.size(); ++s) {
      const Source& source = sources_[s];
      const std::int64_t from = std::clamp<std::int64_t>(share.from - source.start, 0, source.size);
      const std::int64_t to = std::clamp<std::int64_t>(share.to - source.start, 0, source.size);
      if (from >= to) continue;
      out_.stopped = enough();
      if (out_.stopped) break;
      if (source.kind == SourceKind::plain)
        read_plain(source, from, to);
      else
        read_rows(s, from, to);
    }
    spool_.flush();
    return std::move(out_);
  }

 private:
  /// Nothing that follows in this rank's share can matter.
  bool enough() const {
    const bool taken = data_.take > 0 && data_.join == 0 && documents() >= data_.take;
    return taken || static_cast<std::int64_t>(out_.bad.size()) > data_.skip_bad;
  }

  void tell(std::int64_t at) const {
    if (told_) told_(std::min(at, share_.to) - share_.from, share_.to - share_.from);
  }

  /// A plain file is one document, of which each rank reads the pieces that begin in its share.
  void read_plain(const Source& source, std::int64_t from, std::int64_t to) {
    if (!encoder_.cuts()) {  // whole, where it begins
      if (from > 0) return;
      to = source.size;
    }
    const auto may_cut = [this](std::string_view text, std::size_t at) { return encoder_.cuts_at(text, at); };
    bool begun = false;  // the document has a length here
    TextPieces pieces(source.path, source.size, from, to, source.compression, may_cut);
    while (pieces.next()) {
      std::string_view text = pieces.text();
      const std::int64_t bad = encoder_.takes_bytes() ? -1 : first_invalid_utf8(text);
      if (bad >= 0)
        input_error(source.path + ": byte " + std::to_string(pieces.at() + bad) +
                    " is not valid UTF-8; convert the file to UTF-8 (iconv does), or mend it");
      const bool first = pieces.at() == 0;
      if (first && text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
      encoder_.piece({.text = text, .behind = pieces.behind(), .first = first}, document_);
      if (first || !begun) out_.lengths.push_back(0);
      if (!first && !begun) out_.continues = true;
      begun = true;
      out_.lengths.back() += static_cast<std::int64_t>(document_.ids.size());
      spool_.append(document_.ids, document_.mask);
      document_.clear();
      tell(source.start + pieces.at() + static_cast<std::int64_t>(text.size()));
    }
    if (begun && out_.lengths.back() == 0) {
      out_.lengths.pop_back();
      out_.empty.push_back(documents());
    }
  }

  void read_rows(std::size_t s, std::int64_t from, std::int64_t to) {
    const Source& source = sources_[s];
    LineReader lines(source.path, source.size, from, to, source.compression);
    while (!enough() && lines.next()) {
      const bool blank = lines.line().find_first_not_of(" \t\r") == std::string_view::npos;
      if (blank && lines.last()) break;
      try {
        if (blank) throw RowError{"is blank; remove the line"};
        encoder_.row(parse_row(lines.line()), source.kind, document_);
        close_document();
      } catch (const RowError& e) {
        document_.clear();
        out_.bad.push_back({s, lines.number(), lines.at() + e.byte, documents(), e.why});
      }
      tell(source.start + lines.at());
    }
    out_.lines[s] = lines.number();
  }

  void close_document() {
    const auto whole = static_cast<std::int64_t>(document_.ids.size());
    if (whole == 0) {
      out_.empty.push_back(documents());
      return;
    }
    // Texts that are still to be joined are cut afterwards.
    const bool cuts = data_.max_length > 0 && data_.join == 0;
    const std::int64_t length = cuts ? std::min(whole, data_.max_length) : whole;
    if (length < whole) out_.cut.push_back({documents(), whole - length});
    document_.ids.resize(static_cast<std::size_t>(length));
    document_.mask.resize(static_cast<std::size_t>(length));
    spool_.append(document_.ids, document_.mask);
    out_.lengths.push_back(length);
    document_.clear();
  }

  /// That began here.
  std::int64_t documents() const {
    return static_cast<std::int64_t>(out_.lengths.size()) - (out_.continues ? 1 : 0);
  }

  const std::vector<Source>& sources_;
  const DataSection& data_;
  RowEncoder& encoder_;
  TokenSpool& spool_;
  const Told& told_;
  Share share_;
  RowTokens document_;  // being made
  Reading out_;
};

}  // namespace

Reading read_share(const std::vector<Source>& sources, Share share, const DataSection& data,
                   RowEncoder& encoder, TokenSpool& spool, const Told& told) {
  return Reader(sources, data, encoder, spool, told).read(share);
}

}  // namespace annulus
