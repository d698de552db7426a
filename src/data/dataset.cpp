#include "data/dataset.h"
#include <algorithm>
#include <iomanip>
#include <sstream>
#include "core/check.h"

namespace annulus {
namespace {

constexpr std::int64_t kBlock = std::int64_t{1} << 20;

[[noreturn]] void beyond_vocabulary(const TokenFile& file, const std::string& path, std::int64_t at,
                                    std::int64_t id, std::int64_t vocabulary) {
  const auto& offsets = file.documents();
  const auto next = std::upper_bound(offsets.begin(), offsets.end(), at);
  const auto document = next - offsets.begin() - 1;
  input_error(path + ": token " + std::to_string(at) + " (document " + std::to_string(document) +
              ", its token " + std::to_string(at - *(next - 1)) + ") is id " + std::to_string(id) +
              ", but the model has a vocabulary of " + std::to_string(vocabulary) +
              "; tokenize the data for this model");
}

/// The file promises that no id is above its largest; where that is too large, the place is looked for.
void check_ids(TokenFile& file, const std::string& path, std::int64_t vocabulary) {
  if (file.largest_id() < vocabulary) return;
  const std::int64_t all = file.documents().back();
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(kBlock, all)));
  std::vector<std::uint8_t> mask(ids.size());
  for (std::int64_t at = 0; at < all; at += kBlock) {
    const std::int64_t count = std::min(kBlock, all - at);
    file.read(at, count, ids.data(), mask.data());
    for (std::int64_t i = 0; i < count; ++i)
      if (const std::int64_t id = ids[static_cast<std::size_t>(i)]; id >= vocabulary)
        beyond_vocabulary(file, path, at + i, id, vocabulary);
  }
}

void check_offsets(const std::vector<std::int64_t>& offsets, const std::string& path) {
  if (offsets.size() < 2 || offsets.front() != 0 || !std::is_sorted(offsets.begin(), offsets.end()) ||
      offsets.back() == 0)
    input_error(
        path +
        ": the offsets of its documents are not ascending from 0, or it holds no token; tokenize again");
}

}  // namespace

Dataset::Dataset(Comm& world, const std::string& token_file, const DataSection& data, std::int64_t vocabulary)
    : path_(token_file), sequence_(data.sequence), strategy_(data.packing) {
  agreed(world, "opening the token file", [&] {
    file_ = open_token_file(token_file);
    check_offsets(file_->documents(), token_file);
    check_ids(*file_, token_file, vocabulary);
  });
  packing_ = pack_rows(file_->documents(), sequence_, data.packing);
}

std::int64_t Dataset::row_tokens(std::int64_t row) const {
  std::int64_t n = 0;
  for (const Span& s : packing_.rows.at(static_cast<std::size_t>(row))) n += s.count;
  return n;
}

std::int64_t Dataset::tokens() const {
  std::int64_t n = 0;
  for (std::int64_t row = 0; row < rows(); ++row) n += row_tokens(row);
  return n;
}

std::string Dataset::describe() const {
  std::map<std::string, std::string> facts = file_->source();  // which another program may have left out
  facts.emplace("documents", std::to_string(file_->documents().size() - 1));
  facts.emplace("tokens", std::to_string(file_->documents().back()));
  std::ostringstream out;
  out << path_ << ": " << describe_tokens(facts);
  if (rows() > 0) {
    const double places = static_cast<double>(rows()) * static_cast<double>(sequence_);
    out << "; packing (" << strategy_ << ") fills " << std::fixed << std::setprecision(1)
        << 100.0 * static_cast<double>(tokens()) / places << " % of " << rows() << " rows";
  }
  if (dropped_tokens() > 0) out << "; " << dropped_tokens() << " tokens do not fit and are dropped";
  return out.str();
}

std::vector<std::int64_t> Dataset::starts(std::int64_t row) const {
  std::vector<std::int64_t> all;
  std::int64_t at = 0;
  for (const Span& s : packing_.rows.at(static_cast<std::size_t>(row))) {
    all.push_back(at);
    at += s.count;
  }
  return all;
}

Dataset::Where Dataset::where(std::int64_t row, std::int64_t position) const {
  std::int64_t rest = position;
  for (const Span& s : packing_.rows.at(static_cast<std::size_t>(row))) {
    if (rest >= s.count) {
      rest -= s.count;
      continue;
    }
    const std::vector<std::int64_t>& offsets = file_->documents();
    const std::int64_t token = s.from + rest;
    const auto next = std::upper_bound(offsets.begin(), offsets.end(), token);
    return {
        .document = next - offsets.begin() - 1, .token = token - *(next - 1), .tokens = *next - *(next - 1)};
  }
  fail("data set", "a position beyond the row's documents");
}

void Dataset::fill(const Span& span, std::int64_t start, const Run& run, LocalRow& out) {
  // Row positions [from, to) of this span lie in the run; the token behind them tells the last one's target.
  const std::int64_t from = std::max(start, run.position),
                     to = std::min(start + span.count, run.position + run.count);
  if (from >= to) return;
  const std::int64_t read = std::min(to + 1, start + span.count) - from;
  ids_.resize(static_cast<std::size_t>(read));
  mask_.resize(static_cast<std::size_t>(read));
  try {
    file_->read(span.from + (from - start), read, ids_.data(), mask_.data());
  } catch (const Error& e) {
    throw Error(e.code, e.what(), false);  // this rank alone has read these bytes
  }
  for (std::int64_t p = from; p < to; ++p) {
    const auto i = static_cast<std::size_t>(p - from),
               at = static_cast<std::size_t>(run.at + (p - run.position));
    out.ids[at] = ids_[i];
    out.positions[at] = p - start;
    const bool target = p + 1 < start + span.count && mask_[i + 1] != 0;
    out.targets[at] = target ? ids_[i + 1] : -1;
  }
}

LocalRow Dataset::local_row(std::int64_t row, const Grid& grid, int per_member,
                            std::span<const std::int64_t> windows) {
  static const PackedRow kEmpty;
  const PackedRow& spans = row < 0 ? kEmpty : packing_.rows.at(static_cast<std::size_t>(row));
  RowShape shape;
  shape.sequence = sequence_;
  for (const Span& s : spans) {
    shape.starts.push_back(shape.used);
    shape.used += s.count;
  }
  const std::vector<std::int64_t> starts = shape.starts;
  LocalRow out{RowMap(std::move(shape), grid.ring, grid.ulysses, per_member, windows), {}, {}, {}};
  const auto Tl = static_cast<std::size_t>(out.map.local_tokens());
  out.ids.assign(Tl, 0);
  out.targets.assign(Tl, -1);
  out.positions.assign(Tl, 0);
  for (const Run& run : out.map.local_runs(grid.ring_index, grid.ulysses_index)) {
    const auto next = std::upper_bound(starts.begin(), starts.end(), run.position);
    auto s = static_cast<std::size_t>(std::max<std::ptrdiff_t>(next - starts.begin() - 1, 0));
    for (; s < starts.size() && starts[s] < run.position + run.count; ++s)
      fill(spans[s], starts[s], run, out);
  }
  return out;
}

}  // namespace annulus
