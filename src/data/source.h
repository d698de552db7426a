// The files of a data set: what they hold, and which part of them a rank reads.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
#include "comm/comm.h"
#include "config/run_config.h"
#include "data/byte_stream.h"

namespace annulus {

/// pair_rows: prompt and completion as texts; chat_pair_rows: as lists of messages.
enum class SourceKind : std::uint8_t { plain, text_rows, token_rows, chat_rows, pair_rows, chat_pair_rows };

struct Source {
  std::string path;
  std::int64_t size = 0;   // bytes, decompressed
  std::int64_t start = 0;  // its first byte when all files are laid end to end
  SourceKind kind = SourceKind::plain;
  Compression compression = Compression::none;
};

/// Collective. Sizes and kinds of the files: data.format, or for `auto` the file's name (.jsonl and .json
/// hold rows, .gz and .zst behind it or not) and its first sound row. The size of a compressed file is found
/// by reading it, each by another rank; one that stops in the middle fails here (input).
std::vector<Source> survey(Comm& world, const std::vector<std::string>& files, const DataSection&);

/// A rank's bytes of the files laid end to end: equal parts, so that the ranks' parts in order are the files.
struct Share {
  std::int64_t from = 0, to = 0;
};
Share share_of(const std::vector<Source>&, int rank, int ranks);

}  // namespace annulus
