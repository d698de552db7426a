// A group of ranks that act together. Size 1 is a real case: every collective then copies or does nothing,
// and the training code has no `if (size > 1)`.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "core/check.h"
#include "core/queue.h"
#include "core/tensor.h"

namespace annulus {

enum class Reduce : std::uint8_t { sum, max };

struct Send {
  int to;
  Tensor data;
};
struct Receive {
  int from;
  Tensor data;
};

/// Two faces. The tensor face is asynchronous on its lane (order and completion come from the Queue's marks);
/// tensors lie where the backend computes and are contiguous. The host face is synchronous, for counts and
/// flags. Every rank of the group enters every call, in the same order, with the same sizes unless said.
/// Counts are 64-bit; a member splits what its library cannot take in one call.
class Comm {
 public:
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const char* kind() const = 0;  // "self", "mpi", "nccl", "loopback"

  // Tensor face.
  /// Element-wise sum or maximum over the group, in place. f32, f64, i64.
  virtual void all_reduce(Lane, const Tensor& inout, Reduce = Reduce::sum) = 0;
  /// all (size * n) = every rank's mine (n), by rank. `mine` may be its own place inside `all`. Any dtype.
  virtual void all_gather(Lane, const Tensor& mine, const Tensor& all) = 0;
  /// mine (n) = sum over ranks of their all[rank * n ...]. f32. `mine` may be its own place inside `all`;
  /// otherwise `all` is left as it was or overwritten: do not read it afterwards.
  virtual void reduce_scatter(Lane, const Tensor& all, const Tensor& mine) = 0;
  /// All sends and receives at once, none waiting for another. The i-th send from a to b meets the i-th
  /// receive of b from a; sizes agree; zero-sized ones are skipped on both sides. To oneself is allowed.
  virtual void exchange(Lane, std::span<const Send>, std::span<const Receive>) = 0;

  // Host face.
  virtual void all_reduce(std::span<std::int64_t>, Reduce = Reduce::sum) = 0;
  virtual void all_reduce(std::span<double>, Reduce = Reduce::sum) = 0;
  /// Everybody's bytes, by rank; lengths may differ.
  virtual std::vector<std::string> all_gather(const std::string& mine) = 0;
  /// Everybody's numbers, by rank; as many from each.
  virtual std::vector<std::int64_t> all_gather(std::span<const std::int64_t> mine);
  virtual void broadcast(std::string& bytes, int root) = 0;
  virtual void barrier() = 0;

  /// Ranks with the same color form a group, ordered by rank.
  virtual std::unique_ptr<Comm> split(int color) const = 0;
  /// The same, the color given as a function of the rank, so that a pretended group can be split too.
  virtual std::unique_ptr<Comm> split_by(const std::function<int(int)>& color) const {
    return split(color(rank()));
  }
  /// Ranks that share a node's memory form a group. A group of one, and pretended ones, are one node.
  virtual std::unique_ptr<Comm> split_by_node() const { return split(0); }
  /// Address of the MPI communicator behind the host face (for MPI-IO), or null.
  virtual void* mpi_handle() const { return nullptr; }

  // Conveniences on the host face.
  std::int64_t sum(std::int64_t v) {
    all_reduce(std::span(&v, 1));
    return v;
  }
  double sum(double v) {
    all_reduce(std::span(&v, 1));
    return v;
  }
  std::int64_t max(std::int64_t v) {
    all_reduce(std::span(&v, 1), Reduce::max);
    return v;
  }
};

/// Runs `work`, which one rank may fail alone (its part of a file is bad, its disk is full), and agrees on
/// the outcome: when any rank threw, all throw the same error, that of the lowest failing rank. `work` must
/// make no collective call. `phase` names what was going on.
void agreed(Comm&, std::string_view phase, const std::function<void()>& work);

std::unique_ptr<Comm> make_self_comm(Queue&);  // comm_self.cpp

enum class Collective : std::uint8_t { all_reduce, all_gather, reduce_scatter, exchange };
inline constexpr int kCollectives = 4;

/// What the tensor faces of pretended groups would have sent from this rank: calls, and bytes with every
/// collective done in the fewest (an all-reduce of n bytes sends 2 n (R - 1) / R).
struct Traffic {
  std::int64_t calls[kCollectives][kLanes] = {};
  std::int64_t bytes[kCollectives][kLanes] = {};
  std::int64_t total() const;
};

/// Multiplies a tensor by a factor on a lane.
using Scale = std::function<void(Lane, const Tensor&, double factor)>;

/// Rank `rank` of `size`, without the others (comm_loopback.cpp). Every pretended peer holds what this rank
/// holds, and sends it what it sends itself (where it sends itself nothing: what it sends to others).
/// `traffic`, which outlives the group and all that are split from it, counts for them all. Without `scale`
/// sums of tensors keep this rank's values: enough where only bytes and times matter.
std::unique_ptr<Comm> make_loopback_comm(Queue&, int rank, int size, Traffic* traffic = nullptr,
                                         Scale scale = {});

/// The program's life inside MPI (comm_mpi.cpp). One object in main; `world` lives as long as it does.
class MpiSession {
 public:
  MpiSession(int* argc, char*** argv);  // MPI_Init_thread(funneled); sets g_rank_for_messages
  ~MpiSession();                        // finalizes, unless the job is being aborted
  MpiSession(const MpiSession&) = delete;
  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }  // rank within the node (MPI_COMM_TYPE_SHARED)
  int local_size() const { return local_size_; }
  /// Host-memory group of all ranks.
  std::unique_ptr<Comm> world(Queue&) const;
  /// Ends the whole job at once with this exit code; does not return.
  [[noreturn]] void abort(Exit) const;

 private:
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
};

}  // namespace annulus
