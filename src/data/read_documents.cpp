// From text and token files to documents of tokens, all ranks sharing the work. The outcome does not depend
// on the number of ranks: each reads the lines that begin in its part of the files laid end to end.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include "core/check.h"
#include "data/document_reader.h"
#include "data/documents.h"
#include "data/join.h"
#include "data/row_encoder.h"
#include "data/source.h"
#include "data/token_spool.h"

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

std::int64_t documents_of(const Reading& r) {
  return static_cast<std::int64_t>(r.lengths.size()) - (r.continues ? 1 : 0);
}

/// Tokens that ranks before this one have of the document that goes on here; none when they did not read it,
/// since they had data.take documents before it.
std::optional<std::int64_t> tokens_before(Comm& world, const Reading& mine) {
  const auto last = gather(
      world, {documents_of(mine), mine.lengths.empty() ? 0 : mine.lengths.back(), mine.stopped ? 1 : 0});
  std::int64_t tokens = 0;
  bool read = true;
  for (int r = 0; r < world.rank(); ++r) {
    const auto& there = last[static_cast<std::size_t>(r)];
    tokens = there[0] > 0 ? there[1] : tokens + there[1];
    read = read && there[2] == 0;
  }
  return read ? std::optional(tokens) : std::nullopt;
}

/// What goes to the file when texts are documents: the first `take` over all ranks, cut to `most` tokens.
TokenLayout lay_out(Comm& world, const Reading& mine, std::int64_t documents_before, std::int64_t take,
                    std::int64_t most) {
  const std::optional<std::int64_t> before = tokens_before(world, mine);
  TokenLayout out;
  std::int64_t at = 0, document = documents_before;  // at: in the spool
  for (const std::int64_t& length : mine.lengths) {
    const bool continues = mine.continues && &length == &mine.lengths.front();
    if (!continues) ++document;
    if ((take == 0 || document <= take) && (before || !continues)) {
      const std::int64_t have = continues ? *before : 0;
      const std::int64_t fits = most > 0 ? std::clamp<std::int64_t>(most - have, 0, length) : length;
      if (!continues) out.starts.push_back(out.tokens);
      out.keep(at, fits);
      out.cut += length - fits;
    }
    at += length;
  }
  for (const Reading::Cut& c : mine.cut)
    if (take == 0 || documents_before + c.document < take) out.cut += c.tokens;
  return out;
}

/// The tokens that are kept, by their place among them.
class KeptTokens {
 public:
  KeptTokens(std::unique_ptr<TokenSpool> spool, std::vector<TokenRange> kept)
      : spool_(std::move(spool)), kept_(std::move(kept)) {
    for (const TokenRange& r : kept_) {
      at_.push_back(tokens_);
      tokens_ += r.count;
    }
  }

  template <class T>
  void read(std::int64_t from, std::int64_t count, T* to) const {
    auto r = static_cast<std::size_t>(std::upper_bound(at_.begin(), at_.end(), from) - at_.begin() - 1);
    for (; count > 0; ++r) {
      const std::int64_t skip = from - at_[r], part = std::min(count, kept_[r].count - skip);
      spool_->read(kept_[r].from + skip, part, to);
      to += part;
      from += part;
      count -= part;
    }
  }

 private:
  std::unique_ptr<TokenSpool> spool_;
  std::vector<TokenRange> kept_;
  std::vector<std::int64_t> at_;  // of each range: its first token among all that are kept
  std::int64_t tokens_ = 0;
};

TokenSupply supply_of(std::shared_ptr<const KeptTokens> tokens, TokenLayout layout) {
  TokenSupply out;
  out.tokens = layout.tokens;
  out.starts = std::move(layout.starts);
  out.ids = [tokens](std::int64_t from, std::int64_t count, std::int32_t* to) {
    tokens->read(from, count, to);
  };
  // A document's first token is no target.
  out.mask = [tokens, starts = out.starts](std::int64_t from, std::int64_t count, std::uint8_t* to) {
    tokens->read(from, count, to);
    for (auto s = std::lower_bound(starts.begin(), starts.end(), from);
         s != starts.end() && *s < from + count; ++s)
      to[*s - from] = 0;
  };
  return out;
}

struct Measure {
  std::int64_t targets = 0, largest = -1, without_target = 0;
};

/// One pass over the tokens that are kept. A document whose end lies on another rank counts as having a
/// target: only joined texts and plain files have such an end, and all but their first tokens are targets.
Measure measure(const TokenSupply& supply, bool ends_here) {
  constexpr std::int64_t kBlock = std::int64_t{1} << 20;
  Measure out;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(kBlock, supply.tokens)));
  std::vector<std::uint8_t> mask(ids.size());
  std::int64_t targets =
      1;                 // of the document that the tokens lie in; what goes on from another rank has some
  std::size_t next = 0;  // document that begins next
  for (std::int64_t at = 0; at < supply.tokens; at += kBlock) {
    const std::int64_t count = std::min(kBlock, supply.tokens - at);
    supply.ids(at, count, ids.data());
    supply.mask(at, count, mask.data());
    for (std::int64_t i = 0; i < count; ++i) {
      if (next < supply.starts.size() && supply.starts[next] == at + i) {
        out.without_target += targets == 0;
        targets = 0;
        ++next;
      }
      out.largest = std::max<std::int64_t>(out.largest, ids[static_cast<std::size_t>(i)]);
      targets += mask[static_cast<std::size_t>(i)];
      out.targets += mask[static_cast<std::size_t>(i)];
    }
  }
  if (ends_here) out.without_target += targets == 0;
  return out;
}

}  // namespace

Documents read_documents(Comm& world, const std::vector<std::string>& files, const DataSection& data,
                         const ModelConfig& model, const std::string& model_path, const std::string& beside,
                         const Told& told) {
  const std::vector<Source> sources = survey(world, files, data);
  std::unique_ptr<RowEncoder> encoder;
  agreed(world, "choosing a tokenizer",
         [&] { encoder = std::make_unique<RowEncoder>(sources, data, model, model_path); });
  Reading mine;
  std::unique_ptr<TokenSpool> spool;
  agreed(world, "reading data", [&] {
    spool = std::make_unique<TokenSpool>(beside, world.rank());
    mine = read_share(sources, share_of(sources, world.rank(), world.size()), data, *encoder, *spool, told);
  });
  // What lies behind the documents that data.take asks for was read by some worlds and not by others: it must
  // not count. Joined texts are all read by all.
  const std::int64_t documents_before = sum_before(world, documents_of(mine));
  const auto counts = [&](std::int64_t documents) {
    return data.take == 0 || data.join > 0 || documents_before + documents < data.take;
  };
  const std::int64_t bad =
      std::count_if(mine.bad.begin(), mine.bad.end(), [&](const BadRow& b) { return counts(b.documents); });
  const std::int64_t skipped = check_bad_rows(world, mine, bad, sources, data.skip_bad);
  const std::int64_t empty_texts = std::count_if(mine.empty.begin(), mine.empty.end(), counts);
  TokenLayout layout =
      data.join > 0 ? join_texts(world, mine.lengths, mine.continues, data.join, data.max_length, data.take)
                    : lay_out(world, mine, documents_before, data.take, data.max_length);
  const std::int64_t cut = layout.cut;
  const auto kept = std::make_shared<const KeptTokens>(std::move(spool), std::move(layout.kept));
  TokenSupply supply = supply_of(kept, std::move(layout));
  Measure measured;
  // A document goes on where the next rank that has any token begins none with it: then its end is
  // there.
  std::int64_t after = 0;
  {
    const auto begins =
        gather(world, {supply.tokens, supply.tokens > 0 && !supply.starts.empty() && supply.starts[0] == 0});
    for (int r = world.size() - 1; r > world.rank(); --r)
      if (begins[static_cast<std::size_t>(r)][0] > 0) after = begins[static_cast<std::size_t>(r)][1] == 0;
  }
  agreed(world, "counting tokens", [&] { measured = measure(supply, after == 0); });
  supply.largest = measured.largest;
  std::int64_t sums[] = {static_cast<std::int64_t>(supply.starts.size()),
                         supply.tokens,
                         measured.targets,
                         measured.without_target,
                         empty_texts,
                         cut};
  world.all_reduce(std::span<std::int64_t>(sums));
  const auto [documents, all_tokens, targets, without_target, empty, all_cut] = sums;
  if (documents == 0)
    input_error("the data files, beginning with " + files.front() + ", hold no document; give others");
  if (targets == 0)
    input_error("no token of the data files, beginning with " + files.front() +
                ", is a target: nothing could be learned; check the labels, the roles, and data.loss_on");
  constexpr std::size_t kListed = 4000;  // characters; an attribute of a file has a limit
  std::string paths;
  for (const Source& s : sources) {
    if (paths.size() > kListed) break;
    paths.append(paths.empty() ? "" : "\n").append(s.path);
  }
  return {std::move(supply),
          {{"files", paths},
           {"file_count", std::to_string(sources.size())},
           {"file_bytes", std::to_string(sources.back().start + sources.back().size)},
           {"tokenizer", encoder->tokenizer_name()},
           {"end_of_text", std::to_string(encoder->end_of_text())},
           {"chat", encoder->chat_name()},
           {"loss_on", data.loss_on},
           {"allow_special", data.allow_special ? "true" : "false"},
           {"max_length", std::to_string(data.max_length)},
           {"join", std::to_string(data.join)},
           {"take", std::to_string(data.take)},
           {"documents", std::to_string(documents)},
           {"tokens", std::to_string(all_tokens)},
           {"targets", std::to_string(targets)},
           {"without_target", std::to_string(without_target)},
           {"skipped_rows", std::to_string(skipped)},
           {"empty_texts", std::to_string(empty)},
           {"cut_tokens", std::to_string(all_cut)}}};
}

std::string describe_tokens(const std::map<std::string, std::string>& source) {
  const auto count = [&](const char* key) {
    const auto at = source.find(key);
    return at == source.end() ? std::string() : at->second;
  };
  std::string out = count("documents") + " documents, " + count("tokens") + " tokens";
  if (const std::string targets = count("targets"); !targets.empty())
    out += ", " + targets + " of them targets";
  const auto also = [&](const char* key, const char* what) {
    if (const std::string n = count(key); !n.empty() && n != "0") out.append("; ").append(n).append(what);
  };
  also("without_target", " documents without a target");
  also("empty_texts", " empty texts left out");
  also("skipped_rows", " bad rows skipped");
  also("cut_tokens", " tokens cut at data.max_length");
  return out;
}

}  // namespace annulus
