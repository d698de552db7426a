// What one rank reads of a data set's files.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
#include "config/run_config.h"
#include "data/documents.h"
#include "data/row_encoder.h"
#include "data/source.h"
#include "data/token_spool.h"

namespace annulus {

struct BadRow {
  std::size_t source;
  std::int64_t line, byte;  // line: of this rank's part of the file
  std::int64_t documents;   // that this rank had before it
  std::string why;
};

/// What one rank has read, but for the tokens.
struct Reading {
  std::vector<std::int64_t> lengths;  // of the documents, or what of them lies here
  bool continues = false;             // the first of them began on an earlier rank
  bool stopped = false;               // not all was read, since nothing that follows can matter
  std::vector<BadRow> bad;
  std::vector<std::int64_t> lines;  // of each file, that begin in this rank's share
  std::vector<std::int64_t> empty;  // texts without a byte or token: documents that this rank had before each
  struct Cut {
    std::int64_t document, tokens;
  };
  std::vector<Cut> cut;  // documents that were cut at data.max_length
};

/// The documents that begin in a rank's share of the files, and of plain files its part; their tokens go to
/// the spool, one document or piece at a time. Malformed rows are noted, not thrown; reading stops at more of
/// them than data.skip_bad allows, and at data.take documents. Plain files are not cut at data.max_length
/// yet.
Reading read_share(const std::vector<Source>&, Share, const DataSection&, RowEncoder&, TokenSpool&,
                   const Told&);

}  // namespace annulus
