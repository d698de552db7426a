#include "data/document_reader.h"
#include <algorithm>
#include "core/check.h"
#include "data/line_reader.h"
#include "data/row.h"
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

  void read_plain(const Source& source) {
    std::string text(static_cast<std::size_t>(source.size), '\0');
    if (open_bytes(source.path, source.compression)->read(text.data(), source.size) != source.size)
      environment_error("cannot read " + source.path + "; it may have been cut while it was read");
    const bool marked = text.rfind("\xEF\xBB\xBF", 0) == 0;
    const std::int64_t bad = encoder_.takes_bytes() ? -1 : first_invalid_utf8(text);
    if (bad >= 0)
      input_error(source.path + ": byte " + std::to_string(bad) +
                  " is not valid UTF-8; convert the file to UTF-8 (iconv does), or mend it");
    encoder_.text(std::string_view(text).substr(marked ? 3 : 0), document_);
    close_document();
    tell(source.start + source.size);
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

  std::int64_t documents() const { return static_cast<std::int64_t>(out_.lengths.size()); }

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
