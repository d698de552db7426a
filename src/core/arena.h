// All tensors of a run come from an Arena: persistent state by `keep`, temporaries by `take` and `give`
// inside named phases whose sequence of calls never changes. A first pass (on the dry backend) records who
// lives when; `pack` then places all temporaries of all phases in one pool, and the real run replays it.
#pragma once
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>
#include "core/memory.h"
#include "core/queue.h"

namespace annulus {

/// Labels for accounting; they are not pools.
enum class Region : std::uint8_t { weights, grads, optimizer, saved, workspace, comm };
inline constexpr int kRegions = 6;
const char* name_of(Region);

/// One temporary of a phase: its size, its life in steps of the arena's own clock, and its place in the pool.
struct Tenant {
  Region region = Region::workspace;
  const char* name = "?";
  std::int64_t bytes = 0;           // rounded up to 256
  std::int64_t born = 0, died = 0;  // [born, died) in the phase's count of take and give calls
  Lane lane = Lane::compute;        // where it is written first
  Lane last = Lane::compute;        // where it is used last
  std::int64_t offset = 0;          // in the pool
  std::vector<std::int32_t> after;  // earlier tenants in its place that another lane used last
};

/// What a recorded pass says about memory. Bytes are this rank's.
struct Layout {
  struct Kept {
    Region region;
    std::string name;
    std::int64_t bytes;
  };
  std::vector<Kept> kept;
  std::map<std::string, std::vector<Tenant>> phases;
  std::int64_t pool_bytes = 0;  // size of the packed pool
  std::int64_t live_bytes = 0;  // largest sum of live temporaries: the pool's lower bound
  std::int64_t kept_bytes() const;
  std::int64_t total_bytes() const { return kept_bytes() + pool_bytes; }
  /// Bytes by region at the peak: persistent ones plus the temporaries that live when the pool is fullest.
  std::int64_t region_bytes[kRegions] = {};
};

/// Places the tenants of every phase: largest first, at the lowest offset where no tenant with an overlapping
/// life lies; phases share the pool. Fills `offset`, `after`, `pool_bytes`, `live_bytes`, `region_bytes`.
void pack(Layout&);

class Arena {
 public:
  /// Loose: every `take` is an allocation of its own, and lives are recorded.
  Arena(Queue&, Memory&);
  /// Planned: one pool, sized by a packed layout; `take` must repeat what was recorded.
  Arena(Queue&, Memory&, Layout);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Persistent memory, never given back before the arena ends. Contents undefined.
  Tensor keep(Region, const char* name, DType, std::initializer_list<std::int64_t> shape);

  /// Starts a phase ("micro", "update", ...): no temporary may be alive; all lanes are fenced.
  void begin(const std::string& phase);
  /// A temporary, first written on `lane`, which here waits until the place is free. Contents undefined.
  Tensor take(Region, const char* name, DType, std::initializer_list<std::int64_t> shape,
              Lane lane = Lane::compute);
  /// Ends a temporary's life: what is queued on `last` by now is the last that touches it.
  void give(const Tensor&, Lane last = Lane::compute);

  /// After an exception in the middle of a phase: forgets its temporaries, so that a new phase can begin.
  void abandon();

  Place place() const;
  Queue& queue() { return queue_; }
  /// What has been recorded so far, packed.
  Layout layout() const;
  std::int64_t peak_bytes() const;  // kept + pool (planned), or the largest sum seen (loose)

 private:
  struct Live {
    std::int32_t tenant;
    void* own;
  };
  Queue& queue_;
  Memory& memory_;
  bool planned_ = false;
  Layout layout_;
  char* pool_ = nullptr;
  std::vector<void*> kept_;
  std::vector<Tenant>* phase_ = nullptr;
  std::string phase_name_;
  std::size_t next_ = 0;  // planned: the next tenant to hand out
  std::int64_t clock_ = 0;
  std::map<void*, Live> live_;
  std::vector<Mark> freed_;    // planned: by tenant of this phase, where another lane waits for it
  std::vector<char> awaited_;  // planned: by tenant, whether anybody waits for its mark
  std::int64_t kept_bytes_ = 0, live_bytes_ = 0, peak_ = 0;
};

/// Temporaries that end together, in reverse order, with the scope; used on the compute lane alone.
class Scope {
 public:
  explicit Scope(Arena& arena) : arena_(arena), exceptions_(std::uncaught_exceptions()) {}
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  Tensor take(const char* name, DType dtype, std::initializer_list<std::int64_t> shape,
              Region region = Region::workspace) {
    return held_.emplace_back(arena_.take(region, name, dtype, shape));
  }
  /// Ends one of them early.
  void give(const Tensor&);

 private:
  Arena& arena_;
  int exceptions_;  // in flight when the scope began: one more at its end means that it is being unwound
  std::vector<Tensor> held_;
};

}  // namespace annulus
