// What one rank reads of a data set's files.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
#include "config/run_config.h"
#include "data/source.h"
#include "data/text_encoder.h"
#include "io/token_file.h"

namespace annulus {

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
  std::vector<std::int64_t> empty;  // texts without a byte or token: documents that this rank had before each
  std::vector<std::int64_t> cut;    // of each document: tokens beyond data.max_length
};

/// The documents that begin in a rank's share of the files. Malformed rows are noted, not thrown; reading
/// stops at more of them than data.skip_bad allows, and at data.take documents. The encoder may be missing
/// where no file holds texts.
Reading read_share(const std::vector<Source>&, Share, const DataSection&, TextEncoder*,
                   std::int64_t vocabulary);

}  // namespace annulus
