// How a packed row is cut: documents, padding, chunks, who holds which, and what each may see.
#pragma once
#include <cstdint>
#include <span>
#include <vector>
#include "ops/ops.h"
#include "parallel/grid.h"

namespace annulus {

/// Consecutive row positions that lie consecutively in local memory.
struct Run {
  std::int64_t position = 0;  // in the row
  std::int64_t at = 0;        // local row
  std::int64_t count = 0;
};

/// One packed row before it is cut. Document d covers [starts[d], starts[d+1]), the last one ends at `used`.
/// Positions from `used` to the padded length are padding: each its own document, without a target.
struct RowShape {
  std::int64_t sequence = 0;         // data.sequence, the same for every row of a run
  std::int64_t used = 0;             // tokens in documents, at most sequence
  std::vector<std::int64_t> starts;  // ascending, starts[0] = 0 unless used = 0
};

/// The chunk map of a row over a ring. The padded row has 2 * ring * per_member chunks, equal in length and
/// divisible by ulysses. per_member = 1 is the zigzag: member r holds chunks r and 2 ring - 1 - r.
/// Greater: chunks are dealt by work (sum over positions and windows of p - first(p) + 1), heaviest first, to
/// the member with least work that still has room, ties by index. A member's chunks lie in ascending order;
/// neighbours in the row are joined into one run.
class RowMap {
 public:
  /// `windows`: the distinct windows of the model's layers (0: none), for the work.
  RowMap(RowShape, int ring, int ulysses, int per_member, std::span<const std::int64_t> windows);

  /// Padded length of any row of this sequence length: the same for every row.
  static std::int64_t padded(std::int64_t sequence, int ring, int ulysses, int per_member);

  std::int64_t length() const { return length_; }                           // padded
  std::int64_t member_tokens() const { return length_ / ring_; }            // rows of a ring member
  std::int64_t local_tokens() const { return length_ / ring_ / ulysses_; }  // Tl, rows of a rank
  int ring() const { return ring_; }
  const RowShape& shape() const { return shape_; }

  /// Runs of a ring member, `at` counted in the member's rows (all its ulysses ranks together).
  std::span<const Run> runs(int ring_index) const { return runs_[static_cast<std::size_t>(ring_index)]; }
  /// Runs of one rank: ulysses member u holds rows [u, u+1) * local_tokens of its ring member's.
  std::vector<Run> local_runs(int ring_index, int ulysses_index) const;

  std::int64_t document_start(std::int64_t position) const;  // padding: the position itself
  std::int64_t document_end(std::int64_t position) const;    // one past the document's last position
  /// First visible position: max(start of the document, position - window + 1); window 0: none.
  std::int64_t first(std::int64_t position, std::int64_t window) const;

  /// Visible blocks of member q's queries against member k's keys: one for each pair of runs, cut to the
  /// queries and keys that see one another; empty ones are left out. So without a window only a run's block
  /// against itself can be partial. A ring of one has one block, over the whole row.
  std::vector<AttentionBlock> blocks(int q_member, int k_member, std::int64_t window) const;
  /// Ring steps (0 = none beyond home) after which nobody needs the member's keys any more: the largest s
  /// with blocks(member + s, member) not empty.
  int reach(int k_member, std::int64_t window) const;

 private:
  struct Document {
    std::int64_t start, end;
  };
  std::int64_t pairs(const AttentionBlock&, std::int64_t window) const;
  /// Whether any query of a run sees any key of another, or itself; `head`: the document of its first query.
  bool sees(const Run& q, const Document& head, const Run& k, std::int64_t window) const;

  RowShape shape_;
  int ring_, ulysses_;
  std::int64_t length_ = 0, chunk_ = 0;
  std::vector<std::vector<Run>> runs_;        // by member
  std::vector<std::vector<Document>> heads_;  // of each run's first position
};

/// One rank's part of a row, on the host: what the trainer hands to the model.
struct LocalRow {
  RowMap map;
  std::vector<std::int32_t> ids;        // (Tl) padding: id 0
  std::vector<std::int32_t> targets;    // (Tl) shifted over the whole row before the cut; -1: none
  std::vector<std::int64_t> positions;  // (Tl) within the document
  std::int64_t target_count() const;
};

}  // namespace annulus
