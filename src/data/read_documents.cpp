// From text and token files to documents of tokens, all ranks sharing the work. The outcome does not depend
// on the number of ranks: each reads the lines that begin in its part of the files laid end to end.
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include "core/check.h"
#include "data/document_reader.h"
#include "data/documents.h"
#include "data/join.h"
#include "data/source.h"

namespace annulus {
namespace {

/// Each rank's numbers, known to all.
std::vector<std::vector<std::int64_t>> gather(Comm& world, const std::vector<std::int64_t>& mine) {
  std::string bytes(mine.size() * sizeof(std::int64_t), '\0');
  std::memcpy(bytes.data(), mine.data(), bytes.size());
  std::vector<std::vector<std::int64_t>> out;
  for (const std::string& theirs : world.all_gather(bytes)) {
    out.emplace_back(theirs.size() / sizeof(std::int64_t));
    std::memcpy(out.back().data(), theirs.data(), theirs.size());
  }
  return out;
}

/// Sum over the ranks before this one.
std::int64_t sum_before(Comm& world, std::int64_t mine) {
  const auto all = gather(world, {mine});
  std::int64_t sum = 0;
  for (int r = 0; r < world.rank(); ++r) sum += all[static_cast<std::size_t>(r)][0];
  return sum;
}

/// Fails on the bad row that is one too many, named by its line in the file. `bad`: of this rank's, those
/// that count. Returns how many were skipped over all ranks.
std::int64_t check_bad_rows(Comm& world, const Reading& mine, std::int64_t bad,
                            const std::vector<Source>& sources, std::int64_t skip_bad) {
  const auto lines = gather(world, mine.lines);
  const std::int64_t bad_before = sum_before(world, bad);
  agreed(world, "reading rows", [&] {
    if (bad_before > skip_bad || bad_before + bad <= skip_bad) return;
    const BadRow& b = mine.bad[static_cast<std::size_t>(skip_bad - bad_before)];
    std::int64_t line = b.line;
    for (int r = 0; r < world.rank(); ++r) line += lines[static_cast<std::size_t>(r)][b.source];
    input_error(sources[b.source].path + " line " + std::to_string(line) + " (byte " +
                std::to_string(b.byte) + ") " + b.why +
                (skip_bad == 0
                     ? std::string("; mend it, or let data.skip_bad skip it")
                     : "; more rows are bad than data.skip_bad=" + std::to_string(skip_bad) + " lets pass"));
  });
  return world.sum(bad);
}

/// The first `take` documents over all ranks.
void take_documents(Comm& world, TokenPart& part, std::int64_t take) {
  const auto have = static_cast<std::int64_t>(part.lengths.size());
  const std::int64_t keep = std::clamp<std::int64_t>(take - sum_before(world, have), 0, have);
  part.lengths.resize(static_cast<std::size_t>(keep));
  part.ids.resize(
      static_cast<std::size_t>(std::accumulate(part.lengths.begin(), part.lengths.end(), std::int64_t{0})));
  part.mask.resize(part.ids.size());
}

/// Cuts documents to `most` tokens (0: none) and takes the target from each first token. Returns tokens cut.
std::int64_t finish_documents(TokenPart& part, std::int64_t most) {
  std::int64_t at = 0, to = 0;
  for (std::int64_t& length : part.lengths) {
    const std::int64_t kept = most > 0 ? std::min(length, most) : length;
    std::move(part.ids.begin() + at, part.ids.begin() + at + kept, part.ids.begin() + to);
    std::move(part.mask.begin() + at, part.mask.begin() + at + kept, part.mask.begin() + to);
    part.mask[static_cast<std::size_t>(to)] = 0;
    at += length;
    to += kept;
    length = kept;
  }
  part.ids.resize(static_cast<std::size_t>(to));
  part.mask.resize(static_cast<std::size_t>(to));
  return at - to;
}

}  // namespace

Documents read_documents(Comm& world, const std::vector<std::string>& files, const DataSection& data,
                         const ModelConfig& model, const std::string& model_path) {
  const std::vector<Source> sources = survey(world, files, data);
  const auto is_tokens = [](const Source& s) { return s.kind == SourceKind::token_rows; };
  const bool texts = !std::all_of(sources.begin(), sources.end(), is_tokens);
  const bool tokens = std::any_of(sources.begin(), sources.end(), is_tokens);
  if (data.join > 0 && tokens)
    usage_error("data.join joins texts, but some data files hold rows of input_ids; set it to 0");
  std::unique_ptr<TextEncoder> encoder;
  agreed(world, "choosing a tokenizer", [&] {
    if (texts) encoder = std::make_unique<TextEncoder>(data, model, model_path);
  });
  Reading mine;
  agreed(world, "reading data", [&] {
    mine = read_share(sources, share_of(sources, world.rank(), world.size()), data, encoder.get(), model.V);
  });
  // What lies behind the documents that data.take asks for was read by some worlds and not by others: it must
  // not count. Joined texts are all read by all.
  const std::int64_t documents_before =
      sum_before(world, static_cast<std::int64_t>(mine.part.lengths.size()));
  const auto counts = [&](std::int64_t documents) {
    return data.take == 0 || data.join > 0 || documents_before + documents < data.take;
  };
  const std::int64_t bad =
      std::count_if(mine.bad.begin(), mine.bad.end(), [&](const BadRow& b) { return counts(b.documents); });
  const std::int64_t skipped = check_bad_rows(world, mine, bad, sources, data.skip_bad);
  const std::int64_t empty_texts = std::count_if(mine.empty.begin(), mine.empty.end(), counts);
  if (data.join > 0) join_texts(world, mine.part, data.join);
  if (data.take > 0) take_documents(world, mine.part, data.take);
  std::int64_t cut = finish_documents(mine.part, data.max_length);
  if (data.join == 0)
    cut += std::accumulate(mine.cut.begin(),
                           mine.cut.begin() + static_cast<std::ptrdiff_t>(mine.part.lengths.size()),
                           std::int64_t{0});

  const auto& mask = mine.part.mask;
  std::int64_t sums[] = {static_cast<std::int64_t>(mine.part.lengths.size()),
                         static_cast<std::int64_t>(mask.size()),
                         std::count(mask.begin(), mask.end(), std::uint8_t{1}), empty_texts, cut};
  world.all_reduce(std::span<std::int64_t>(sums));
  const auto [documents, all_tokens, targets, empty, all_cut] = sums;
  if (documents == 0)
    input_error("the data files, beginning with " + files.front() + ", hold no document; give others");
  if (targets == 0)
    input_error("no token of the data files, beginning with " + files.front() +
                ", is a target: nothing could be learned; check the labels");
  constexpr std::size_t kListed = 4000;  // characters; an attribute of a file has a limit
  std::string paths;
  for (const Source& s : sources) {
    if (paths.size() > kListed) break;
    paths.append(paths.empty() ? "" : "\n").append(s.path);
  }
  return {std::move(mine.part),
          {{"files", paths},
           {"file_count", std::to_string(sources.size())},
           {"file_bytes", std::to_string(sources.back().start + sources.back().size)},
           {"tokenizer", texts ? encoder->name() : "none"},
           {"end_of_text", std::to_string(texts ? encoder->end() : -1)},
           {"allow_special", data.allow_special ? "true" : "false"},
           {"max_length", std::to_string(data.max_length)},
           {"join", std::to_string(data.join)},
           {"take", std::to_string(data.take)},
           {"documents", std::to_string(documents)},
           {"tokens", std::to_string(all_tokens)},
           {"targets", std::to_string(targets)},
           {"skipped_rows", std::to_string(skipped)},
           {"empty_texts", std::to_string(empty)},
           {"cut_tokens", std::to_string(all_cut)}}};
}

}  // namespace annulus
