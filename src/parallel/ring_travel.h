// What travels the ring: keys and values forward, and in the backward the sums of their gradients.
#pragma once
#include <vector>
#include "comm/comm.h"
#include "core/arena.h"
#include "ops/ops.h"
#include "parallel/row_map.h"

namespace annulus {

/// Keys and values, or their gradients, of some heads: (Tm, g, D) each.
struct KeyValue {
  Tensor k, v;
};
/// Heads [begin, begin + count) of (2, Tm, G, D).
KeyValue heads_of(const Tensor& kv, std::int64_t begin, std::int64_t count);

/// Who holds whose keys when. At step s a member holds those of owner(s), the member s places down the ring,
/// if the owner's reach is s or more. All members work it out from the same map, so senders and receivers
/// agree.
class Route {
 public:
  Route(const RowMap&, std::int64_t window, int me);
  int size() const { return static_cast<int>(reach_.size()); }
  int up(int by) const { return ((me_ + by) % size() + size()) % size(); }
  int owner(int step) const { return up(-step); }
  int reach(int member) const { return reach_[static_cast<std::size_t>(member)]; }
  bool holds(int step) const { return step < size() && step <= reach(owner(step)); }
  bool passes_on(int step) const { return step < reach(owner(step)); }  // after the step

 private:
  int me_;
  std::vector<int> reach_;
};

/// Keys and values of one group of heads on their way, in two slots: one is read while the other fills.
class TravellingKeys {
 public:
  /// `heads` key/value heads a group. The slots are taken here, the same for every row.
  TravellingKeys(Arena&, Comm& ring, std::int64_t rows, std::int64_t heads, std::int64_t D, bool packed,
                 DType);
  /// Home keys of a group: heads [begin, begin + count) of kv. The compute lane has written them.
  void start(const Route&, const Tensor& kv, std::int64_t begin, std::int64_t count);
  /// Posts the transfer of step -> step + 1; to be called before the attention of `step`.
  void shift(const Route&, int step);
  /// The keys to work on at `step`; the compute lane waits for them.
  KeyValue at(int step);
  /// The compute lane has passed its use of the keys of `step`.
  void used(int step);
  /// All is sent: the compute lane waits for it, and the slots are given back.
  void finish();

 private:
  struct Slot {
    Tensor kv;
    Mark ready, free;
  };
  Slot& slot(int step) { return slots_[static_cast<std::size_t>(step - 1) % slots_.size()]; }

  Arena& arena_;
  Queue& queue_;
  Comm& ring_;
  bool packed_;  // home keys are a part of a larger tensor and are packed before they are sent
  std::vector<Slot> slots_;
  KeyValue home_;
  Tensor home_sent_;
};

/// Sums of dK and dV in f32. They follow their keys one step behind, so that the transfer of one sum overlaps
/// the attention that adds to the next: at step s a member fills one slot with its own part, while the sum of
/// step s - 1 leaves the other and the one that the part belongs to arrives in its place, piece by piece
/// through a small buffer. From the last member that used the keys their sum goes home.
class TravellingSums {
 public:
  /// `passage`: elements that move at a time, more than none.
  TravellingSums(Arena&, Comm& ring, Ops&, std::int64_t rows, std::int64_t heads, std::int64_t D,
                 std::int64_t passage);
  /// Where the returning sum of a group's home keys is added: (2, Tm, heads, D) f32, contiguous.
  void start(const Tensor& own) { own_ = own; }
  /// Posts the transfers into `step` (2 to the size of the ring), before the attention of that step.
  void shift(const Route&, int step);
  /// A zeroed slot for this member's part at `step`.
  Tensor open(int step);
  /// The part of `step` is complete: adds what other members have summed before.
  void join(int step);
  void finish();

 private:
  Tensor& slot(int step) { return slots_[static_cast<std::size_t>(step) % slots_.size()]; }
  Mark& arrived(int step) { return arrived_[step % 2]; }
  void bring_home(const Route&, int step);
  void pass_on(const Route&, int step);

  Arena& arena_;
  Queue& queue_;
  Comm& ring_;
  Ops& ops_;
  std::vector<Tensor> slots_;
  Tensor passage_, own_;
  Mark arrived_[2];
};

}  // namespace annulus
