// From files to packed rows.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>
#include "comm/comm.h"
#include "config/model_config.h"
#include "config/run_config.h"
#include "data/documents.h"
#include "io/token_file.h"
#include "parallel/row_map.h"

namespace annulus {

/// A stretch of tokens of the token file that lies in a row as one document.
struct Span {
  std::int64_t from = 0, count = 0;
};
/// Documents of one row, in order.
using PackedRow = std::vector<Span>;

/// A pure function of its arguments (data section of src/README.md).
///   bfd        best fit decreasing; a document longer than the row is cut and its rest dropped
///   bfd_split  the rest becomes further documents
///   wrapped    all documents joined and sliced; each row is one document
///   none       one document a row, cut to it
struct PackingResult {
  std::vector<PackedRow> rows;
  std::int64_t dropped_tokens = 0;  // by cutting
};
PackingResult pack_rows(const std::vector<std::int64_t>& document_offsets, std::int64_t sequence,
                        const std::string& strategy);

/// Tokenizes `files` as `data` says into `out` (a token file), all ranks sharing the work. Returns after the
/// file is whole. Documents and their order do not depend on the number of ranks. Input errors name file,
/// physical line (from 1) and byte of the file (from 0).
///   text    JSONL rows with "text" (.jsonl, .json), or else a plain file, which is one document
///   tokens  JSONL rows with "input_ids" and perhaps "labels": each its own token's id, or -100 (no target)
/// data.tokenizer: a tokenizer.json (its path, or auto for the model folder's), whose added tokens a text may
/// spell only with data.allow_special; or bytes, ids 0 to 255. A text ends with the model's first end-of-text
/// id if that is in the vocabulary (and no byte), else with nothing. Texts without a byte are left out and
/// counted.
/// Memory does not grow with the files, but for 8 bytes a document: tokens go to a spool beside `out` (5
/// bytes each, gone at the end) until their number is known. A row is held whole; a plain file, which is
/// one document, is not where its tokenizer lets it be cut before lines (data section of src/README.md).
/// Returns the facts that `out` holds (describe_tokens() says them).
std::map<std::string, std::string> tokenize_files(Comm& world, const std::vector<std::string>& files,
                                                  const DataSection&, const ModelConfig&,
                                                  const std::string& model_path, const std::string& out,
                                                  const Told& = {});

/// Order of rows in an epoch: a permutation keyed by (seed, epoch), or the identity.
std::vector<std::int64_t> row_order(std::int64_t rows, std::int64_t seed, std::int64_t epoch, bool shuffle);

/// Rows of a token file, cut for one rank.
class Dataset {
 public:
  /// Opens and packs. `vocabulary`: ids at or beyond it are an input error.
  Dataset(Comm& world, const std::string& token_file, const DataSection&, std::int64_t vocabulary);
  std::int64_t rows() const { return static_cast<std::int64_t>(packing_.rows.size()); }
  std::int64_t tokens() const;                      // in rows
  std::int64_t row_tokens(std::int64_t row) const;  // tokens in the row's documents
  TokenFile& file() const { return *file_; }
  /// The rank's part of a row; reads only the bytes it needs. Local to a rank. A negative row is an empty one
  /// (all padding), for a group that has no row left.
  LocalRow local_row(std::int64_t row, const Grid&, int per_member, std::span<const std::int64_t> windows);

  /// Which token of the file lies at a position of a row.
  struct Where {
    std::int64_t document = 0;           // of the file, from 0
    std::int64_t token = 0, tokens = 0;  // in the document, and how many it has
  };
  Where where(std::int64_t row, std::int64_t position) const;
  std::vector<std::int64_t> starts(std::int64_t row) const;  // of the row's documents
  const std::string& path() const { return path_; }

  std::int64_t dropped_tokens() const { return packing_.dropped_tokens; }  // by the packing's cuts
  /// For people: the token file's facts, and how full packing made the rows.
  std::string describe() const;

 private:
  /// The part of a span, which begins at row position `start`, that lies in the run.
  void fill(const Span&, std::int64_t start, const Run&, LocalRow& out);

  std::string path_;
  std::unique_ptr<TokenFile> file_;
  PackingResult packing_;
  std::int64_t sequence_;
  std::string strategy_;           // data.packing
  std::vector<std::int32_t> ids_;  // of one read
  std::vector<std::uint8_t> mask_;
};

}  // namespace annulus
