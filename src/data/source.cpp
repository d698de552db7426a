#include "data/source.h"
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include "core/check.h"
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

void refuse_compressed(const std::string& path) {
  char head[4] = {};
  std::ifstream(path, std::ios::binary).read(head, 4);
  const std::string_view magic(head, 4);
  const bool gzip = magic.substr(0, 2) == "\x1f\x8b", zstd = magic == "\x28\xb5\x2f\xfd";
  if (gzip || zstd)
    input_error("the data file " + path + " is compressed (" + (gzip ? "gzip" : "zstd") +
                "), which is not read in this version; decompress it first");
}

[[noreturn]] void format_not_here(const std::string& what) {
  input_error(what +
              " is not available in this version; apply the chat format elsewhere and give rows of input_ids "
              "and labels (data.format=tokens)");
}

/// By the first sound row, looked for among as many rows as may be bad.
SourceKind kind_of_rows(const std::string& path, std::int64_t size, std::int64_t skip_bad) {
  LineReader lines(path, size, 0, size);
  for (std::int64_t tried = 0; tried <= skip_bad && lines.next(); ++tried) {
    try {
      const RowFields row = parse_row(lines.line());
      if (row.has("input_ids")) return SourceKind::token_rows;
      if (row.has("text")) return SourceKind::text_rows;
      for (const char* chat : {"messages", "conversations", "prompt"})
        if (row.has(chat)) format_not_here("reading " + path + ", whose rows have \"" + chat + "\",");
    } catch (const RowError&) {  // reading the rows will name it
    }
  }
  return SourceKind::text_rows;
}

SourceKind kind_of(const std::string& path, std::int64_t size, const DataSection& data) {
  if (data.format == "tokens") return SourceKind::token_rows;
  const std::string ending = fs::path(path).extension().string();
  if (ending != ".jsonl" && ending != ".json") return SourceKind::plain;
  return data.format == "text" ? SourceKind::text_rows : kind_of_rows(path, size, data.skip_bad);
}

}  // namespace

std::vector<Source> survey(Comm& world, const std::vector<std::string>& files, const DataSection& data) {
  if (files.empty()) usage_error("no data file is given; name at least one");
  if (data.format == "messages" || data.format == "prompt_completion")
    format_not_here("data.format=" + data.format);
  std::string found;  // "size kind" of each file
  agreed(world, "looking at the data files", [&] {
    if (world.rank() != 0) return;
    for (const std::string& path : files) {
      const std::int64_t size = size_of(path);
      refuse_compressed(path);
      const auto kind = static_cast<int>(kind_of(path, size, data));
      found += std::to_string(size) + " " + std::to_string(kind) + "\n";
    }
  });
  world.broadcast(found, 0);
  std::istringstream in(found);
  std::vector<Source> out;
  std::int64_t start = 0;
  for (const std::string& path : files) {
    Source s{path, 0, start, SourceKind::plain};
    int kind = 0;
    in >> s.size >> kind;
    s.kind = static_cast<SourceKind>(kind);
    start += s.size;
    out.push_back(s);
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
