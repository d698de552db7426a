// What one rank reads of a data set's files.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>
#include "config/run_config.h"
#include "data/source.h"
#include "io/token_file.h"

namespace annulus {

/// Bytes are ids 0 to 255; a text ends with the model's first end-of-text id where that is one beyond them.
struct ByteTokenizer {
  std::int64_t end = -1;

  void append(std::string_view text, TokenPart& to) const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    to.ids.insert(to.ids.end(), bytes, bytes + text.size());
    if (end >= 0) to.ids.push_back(static_cast<std::int32_t>(end));
    to.mask.resize(to.ids.size(), 1);
  }
};

struct BadRow {
  std::size_t source;
  std::int64_t line, byte;  // line: of this rank's part of the file
  std::int64_t documents;   // that this rank had before it
  std::string why;
};

/// What one rank has read.
struct Reading {
  TokenPart part;
  std::vector<BadRow> bad;
  std::vector<std::int64_t> lines;  // of each file, that begin in this rank's share
  std::vector<std::int64_t> empty;  // texts without a byte: documents that this rank had before each
  std::vector<std::int64_t> cut;    // of each document: tokens beyond data.max_length
};

/// The documents that begin in a rank's share of the files. Malformed rows are noted, not thrown; reading
/// stops at more of them than data.skip_bad allows, and at data.take documents.
Reading read_share(const std::vector<Source>&, Share, const DataSection&, ByteTokenizer,
                   std::int64_t vocabulary);

}  // namespace annulus
