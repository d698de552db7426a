#include "data/source.h"
#include <algorithm>
#include <filesystem>
#include <sstream>
#include "core/check.h"
#include "data/foreign.h"
#include "data/line_reader.h"
#include "data/row.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

std::int64_t size_of(const std::string& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (!fs::exists(status))
    input_error("the data file " + path + " does not exist; correct data.train or data.eval");
  if (!fs::is_regular_file(status))
    input_error("the data file " + path + " is not a regular file; name the files themselves");
  const auto size = fs::file_size(path, code);
  if (code) environment_error("cannot read " + path + ": " + code.message());
  if (size == 0) input_error("the data file " + path + " is empty; leave it out");
  return static_cast<std::int64_t>(size);
}

/// The name's ending, without that of a compressed file.
std::string ending_of(const std::string& path) {
  const fs::path p(path);
  const bool compressed = p.extension() == ".gz" || p.extension() == ".zst";
  return (compressed ? p.stem() : p).extension().string();
}

Compression checked_compression(const std::string& path) {
  const Compression found = compression_of(path);
  const std::string ending = fs::path(path).extension().string();
  const char* named = ending == ".gz" ? "gzip" : ending == ".zst" ? "zstd" : nullptr;
  if (named != nullptr && found == Compression::none)
    input_error("the data file " + path + " is no " + named +
                " file though it is named so; rename it, or get it again");
  return found;
}

/// By the first sound row, looked for among as many rows as may be bad.
SourceKind kind_of_rows(const std::string& path, Compression compression, std::int64_t skip_bad) {
  LineReader lines(path, LineReader::kUnknown, 0, LineReader::kUnknown, compression);
  for (std::int64_t tried = 0; tried <= skip_bad && lines.next(); ++tried) {
    try {
      const RowFields row = parse_row(lines.line());
      if (row.has("input_ids")) return SourceKind::token_rows;
      if (row.has("messages") || row.has("conversations")) return SourceKind::chat_rows;
      const JsonValue* prompt = row.value("prompt");
      if (prompt != nullptr && prompt->is(JsonValue::Kind::list)) return SourceKind::chat_pair_rows;
      if (row.has("prompt")) return SourceKind::pair_rows;
      return SourceKind::text_rows;
    } catch (const RowError&) {  // reading the rows will name it
    }
  }
  return SourceKind::text_rows;
}

SourceKind kind_of(const std::string& path, Compression compression, const DataSection& data) {
  if (data.format == "tokens") return SourceKind::token_rows;
  if (data.format == "messages") return SourceKind::chat_rows;
  if (data.format == "prompt_completion") {
    const SourceKind found = kind_of_rows(path, compression, data.skip_bad);
    return found == SourceKind::chat_pair_rows ? found : SourceKind::pair_rows;
  }
  const std::string ending = ending_of(path);
  if (ending != ".jsonl" && ending != ".json") return SourceKind::plain;
  return data.format == "text" ? SourceKind::text_rows : kind_of_rows(path, compression, data.skip_bad);
}

}  // namespace

std::vector<Source> survey(Comm& world, const std::vector<std::string>& files, const DataSection& data) {
  if (files.empty()) usage_error("no data file is given; name at least one");
  std::string found;  // "size kind compression" of each file
  agreed(world, "looking at the data files", [&] {
    if (world.rank() != 0) return;
    for (const std::string& path : files) {
      refuse_foreign(path);
      const std::int64_t size = size_of(path);
      const Compression compression = checked_compression(path);
      const auto kind = static_cast<int>(kind_of(path, compression, data));
      found += std::to_string(size) + " " + std::to_string(kind) + " " +
               std::to_string(static_cast<int>(compression)) + "\n";
    }
  });
  world.broadcast(found, 0);
  std::istringstream in(found);
  std::vector<Source> out;
  for (const std::string& path : files) {
    int kind = 0, compression = 0;
    Source& s = out.emplace_back(Source{.path = path});
    in >> s.size >> kind >> compression;
    s.kind = static_cast<SourceKind>(kind);
    s.compression = static_cast<Compression>(compression);
  }
  std::vector<std::int64_t> sizes(out.size());
  agreed(world, "looking at the data files", [&] {
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (static_cast<int>(i % static_cast<std::size_t>(world.size())) != world.rank()) continue;
      const Source& s = out[i];
      sizes[i] = s.compression == Compression::none ? s.size : decompressed_size(s.path, s.compression);
      if (sizes[i] == 0) input_error("the data file " + s.path + " is empty; leave it out");
    }
  });
  world.all_reduce(sizes);
  std::int64_t start = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i].size = sizes[i];
    out[i].start = start;
    start += sizes[i];
  }
  return out;
}

Share share_of(const std::vector<Source>& sources, int rank, int ranks) {
  const std::int64_t all = sources.back().start + sources.back().size;
  const std::int64_t each = all / ranks, rest = all % ranks;
  const auto edge = [&](std::int64_t r) { return r * each + std::min(r, rest); };
  return {edge(rank), edge(rank + 1)};
}

}  // namespace annulus
