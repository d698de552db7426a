#include "parallel/row_map.h"
#include <algorithm>
#include <numeric>

namespace annulus {
namespace {

/// 1 + 2 + ... + n; of -1: 0.
std::int64_t triangle(std::int64_t n) {
  return n % 2 == 0 ? n / 2 * (n + 1) : (n + 1) / 2 * n;
}

/// Visible keys of the queries [from, to) of one document (offsets within it).
std::int64_t visible_pairs(std::int64_t from, std::int64_t to, std::int64_t window) {
  if (window == 0) return triangle(to) - triangle(from);
  const std::int64_t bend = std::clamp(window, from, to);  // from here on every query sees `window` keys
  return triangle(bend) - triangle(from) + (to - bend) * window;
}

/// Pairs of queries [from, to) with keys [begin, end) of one document, all keys before all queries.
std::int64_t pairs_across(std::int64_t from, std::int64_t to, std::int64_t begin, std::int64_t end,
                          std::int64_t window) {
  if (window == 0) return (to - from) * (end - begin);
  // Queries below `bend` see all keys; from there on each sees one fewer than the one before, down to none.
  const std::int64_t bend = std::clamp(begin + window, from, to),
                     stop = std::clamp(end + window - 1, bend, to);
  const std::int64_t some = stop - bend;
  return (bend - from) * (end - begin) + some * (end + window - 1 - bend) - triangle(some - 1);
}

/// The same for each chunk of the row, summed over the windows. One pass over chunks and documents.
std::vector<std::int64_t> chunk_work(const RowShape& shape, std::int64_t chunk, std::int64_t chunks,
                                     std::span<const std::int64_t> windows) {
  std::vector<std::int64_t> work(static_cast<std::size_t>(chunks), 0);
  const auto documents = shape.starts.size();
  for (std::int64_t c = 0; c < chunks; ++c) {
    const std::int64_t padding = std::min(chunk, std::max<std::int64_t>(0, (c + 1) * chunk - shape.used));
    work[static_cast<std::size_t>(c)] = padding * static_cast<std::int64_t>(windows.size());
  }
  for (std::size_t d = 0; d < documents; ++d) {
    const std::int64_t start = shape.starts[d];
    const std::int64_t end = d + 1 < documents ? shape.starts[d + 1] : shape.used;
    for (std::int64_t p = start; p < end;) {
      const std::int64_t c = p / chunk, stop = std::min(end, (c + 1) * chunk);
      for (std::int64_t w : windows)
        work[static_cast<std::size_t>(c)] += visible_pairs(p - start, stop - start, w);
      p = stop;
    }
  }
  return work;
}

/// Which member holds each chunk. One chunk pair a member: the zigzag. More: by work, heaviest first.
std::vector<int> deal(const std::vector<std::int64_t>& work, int ring, int per_member) {
  const auto chunks = static_cast<std::int64_t>(work.size());
  std::vector<int> holder(work.size());
  if (per_member == 1) {
    for (std::int64_t c = 0; c < chunks; ++c)
      holder[static_cast<std::size_t>(c)] = static_cast<int>(std::min(c, chunks - 1 - c));
    return holder;
  }
  std::vector<std::size_t> order(work.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return work[a] > work[b]; });
  std::vector<std::int64_t> load(static_cast<std::size_t>(ring), 0);
  std::vector<int> room(static_cast<std::size_t>(ring), 2 * per_member);
  for (std::size_t c : order) {
    std::size_t best = load.size();
    for (std::size_t m = 0; m < load.size(); ++m)
      if (room[m] > 0 && (best == load.size() || load[m] < load[best])) best = m;
    holder[c] = static_cast<int>(best);
    load[best] += work[c];
    --room[best];
  }
  return holder;
}

void check_shape(const RowShape& shape) {
  need(shape.sequence >= 1, "row: a sequence has at least one token");
  need(shape.used >= 0 && shape.used <= shape.sequence, "row: more tokens than the sequence holds");
  need(shape.starts.empty() == (shape.used == 0), "row: documents and used tokens disagree");
  if (shape.starts.empty()) return;
  need(shape.starts.front() == 0 && shape.starts.back() < shape.used,
       "row: a document starts outside the row");
  for (std::size_t d = 1; d < shape.starts.size(); ++d)
    need(shape.starts[d - 1] < shape.starts[d], "row: documents out of order");
}

}  // namespace

std::int64_t RowMap::padded(std::int64_t sequence, int ring, int ulysses, int per_member) {
  need(sequence >= 1 && ring >= 1 && ulysses >= 1 && per_member >= 1, "row map: sizes are at least one");
  const std::int64_t unit = std::int64_t{2} * ring * per_member * ulysses;
  return (sequence + unit - 1) / unit * unit;
}

RowMap::RowMap(RowShape shape, int ring, int ulysses, int per_member, std::span<const std::int64_t> windows)
    : shape_(std::move(shape)), ring_(ring), ulysses_(ulysses) {
  check_shape(shape_);
  length_ = padded(shape_.sequence, ring, ulysses, per_member);
  const std::int64_t chunks = std::int64_t{2} * ring * per_member;
  chunk_ = length_ / chunks;
  const std::int64_t everything = 0;
  if (windows.empty()) windows = std::span(&everything, 1);
  const std::vector<int> holder = deal(chunk_work(shape_, chunk_, chunks, windows), ring, per_member);

  runs_.resize(static_cast<std::size_t>(ring));
  heads_.resize(static_cast<std::size_t>(ring));
  std::vector<std::int64_t> held(static_cast<std::size_t>(ring), 0);
  for (std::int64_t c = 0; c < chunks; ++c) {
    const auto m = static_cast<std::size_t>(holder[static_cast<std::size_t>(c)]);
    auto& runs = runs_[m];
    if (!runs.empty() && runs.back().position + runs.back().count == c * chunk_)
      runs.back().count += chunk_;
    else
      runs.push_back({.position = c * chunk_, .at = held[m], .count = chunk_});
    held[m] += chunk_;
  }
  for (std::size_t m = 0; m < runs_.size(); ++m)
    for (const Run& run : runs_[m])
      heads_[m].push_back({document_start(run.position), document_end(run.position)});
}

std::vector<Run> RowMap::local_runs(int ring_index, int ulysses_index) const {
  const std::int64_t from = ulysses_index * local_tokens(), to = from + local_tokens();
  std::vector<Run> mine;
  for (const Run& run : runs(ring_index)) {
    const std::int64_t begin = std::max(run.at, from), end = std::min(run.at + run.count, to);
    if (begin < end)
      mine.push_back({.position = run.position + begin - run.at, .at = begin - from, .count = end - begin});
  }
  return mine;
}

std::int64_t RowMap::document_start(std::int64_t position) const {
  if (position >= shape_.used) return position;
  return *(std::upper_bound(shape_.starts.begin(), shape_.starts.end(), position) - 1);
}

std::int64_t RowMap::document_end(std::int64_t position) const {
  if (position >= shape_.used) return position + 1;
  const auto next = std::upper_bound(shape_.starts.begin(), shape_.starts.end(), position);
  return next == shape_.starts.end() ? shape_.used : *next;
}

std::int64_t RowMap::first(std::int64_t position, std::int64_t window) const {
  const std::int64_t start = document_start(position);
  return window == 0 ? start : std::max(start, position - window + 1);
}

bool RowMap::sees(const Run& q, const Document& head, const Run& k, std::int64_t window) const {
  if (q.position < k.position) return false;
  if (q.position == k.position) return true;
  const std::int64_t first = window == 0 ? head.start : std::max(head.start, q.position - window + 1);
  return first < k.position + k.count;
}

std::vector<AttentionBlock> RowMap::blocks(int q_member, int k_member, std::int64_t window) const {
  std::vector<AttentionBlock> found;
  const auto& heads = heads_[static_cast<std::size_t>(q_member)];
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const Run& q = runs(q_member)[i];
    const Document& head = heads[i];
    for (const Run& k : runs(k_member)) {
      if (!sees(q, head, k, window)) continue;
      std::int64_t k_begin = k.position, q_end = q.position + q.count;
      Cover cover = Cover::partial;
      if (q.position == k.position) {
        if (head.end >= q_end && (window == 0 || window >= q.count)) cover = Cover::causal;
      } else {
        // Runs are disjoint, so one document at most reaches from the keys into the queries: the one of the
        // first query. Keys before it and queries behind it drop out; without a window all else is visible.
        k_begin = std::max(k_begin, head.start);
        q_end = std::min(q_end, head.end);
        if (window != 0) {
          k_begin = std::max(k_begin, q.position - window + 1);
          q_end = std::min(q_end, k.position + k.count + window - 1);
        }
        if (window == 0 || q_end - window <= k_begin) cover = Cover::full;
      }
      found.push_back({.q_at = q.at,
                       .q_count = q_end - q.position,
                       .q_position = q.position,
                       .k_at = k.at + k_begin - k.position,
                       .k_count = k.position + k.count - k_begin,
                       .k_position = k_begin,
                       .cover = cover});
      found.back().pairs = pairs(found.back(), window);
    }
  }
  return found;
}

std::int64_t RowMap::pairs(const AttentionBlock& b, std::int64_t window) const {
  if (b.cover == Cover::full) return b.q_count * b.k_count;
  if (b.cover == Cover::causal) return triangle(b.q_count);
  const std::int64_t begin = b.q_position, end = begin + b.q_count;
  if (b.k_position != begin)  // one document
    return pairs_across(begin, end, b.k_position, b.k_position + b.k_count, window);
  std::int64_t sum = std::max<std::int64_t>(0, end - std::max(begin, shape_.used));  // padding sees itself
  for (std::int64_t p = begin; p < std::min(end, shape_.used);) {
    const std::int64_t stop = std::min(end, document_end(p));
    sum += visible_pairs(0, stop - p, window);
    p = stop;
  }
  return sum;
}

int RowMap::reach(int k_member, std::int64_t window) const {
  for (int s = ring_ - 1; s > 0; --s) {
    const int q_member = (k_member + s) % ring_;
    const auto& heads = heads_[static_cast<std::size_t>(q_member)];
    for (std::size_t i = 0; i < heads.size(); ++i)
      for (const Run& k : runs(k_member))
        if (sees(runs(q_member)[i], heads[i], k, window)) return s;
  }
  return 0;
}

std::int64_t LocalRow::target_count() const {
  return std::count_if(targets.begin(), targets.end(), [](std::int32_t t) { return t >= 0; });
}

}  // namespace annulus
