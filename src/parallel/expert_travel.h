// Rows of tokens on their way to the ranks of their experts and back, in tiles; while one tile is computed
// the next arrives and the one before goes home.
#pragma once
#include <array>
#include <vector>
#include "comm/comm.h"
#include "core/arena.h"
#include "ops/backend.h"
#include "parallel/expert_tiles.h"

namespace annulus {

/// One rank's place among those that share the experts, and how it learns what is coming.
class ExpertGroup {
 public:
  /// `group`: tensor face of the ranks that share the experts. `tile`: tokens (0: all).
  ExpertGroup(Backend&, Arena&, Comm& group, std::int64_t E, std::int64_t K, std::int64_t tile,
              double imbalance);

  const ExpertShape& shape() const { return shape_; }
  /// For rows of `tokens` local tokens: of a run always the same.
  ExpertBuffers buffers(std::int64_t tokens) const {
    return expert_buffers(shape_, tokens, tile_, imbalance_);
  }
  /// Tiles of tokens with these expert ids (N, K). Every rank of the group asks; waits for the compute lane.
  std::vector<ExpertTile> tiles(const Tensor& ids);
  Comm& comm() { return group_; }
  Arena& arena() { return arena_; }
  std::int64_t host_bytes() const { return host_.peak_bytes(); }

 private:
  Backend& backend_;
  Arena& arena_;
  Comm& group_;
  ExpertShape shape_;
  std::int64_t tile_;
  double imbalance_;
  Arena host_;
  Tensor read_back_;  // pinned
};

/// A token's rows as they leave (at home: sorted by rank, then token) or as they arrive (away: by rank of
/// origin, then token there).
struct ExpertRows {
  Tensor x;       // (S, C)  in T; on the way back what is returned for each row
  Tensor slots;   // (S, K)  i32
  Tensor shares;  // (S, K)  f32; on the way back of a backward their gradients
  Tensor dy;      // (S, C)  in T; of a backward
};

/// One pass over the tiles of a layer. To be called in the order of run(): the tile after next is sent only
/// when what its slots held has been used.
class ExpertTravel {
 public:
  /// Takes all slots, of sizes that depend on the shape alone. `C`: width of a row.
  ExpertTravel(ExpertGroup&, const ExpertBuffers&, std::int64_t C, DType, bool backward);

  /// Where the compute lane writes the rows of tile `i` before send(); later what returned() says.
  ExpertRows home(int i, const ExpertTile&) const;
  Tensor place(int i, const ExpertTile&) const;  // (tokens, ranks) i32: DispatchIndex's, kept with the tile
  void send(int i, const ExpertTile&);
  /// What has arrived for tile `i`; the compute lane waits for it.
  ExpertRows away(int i, const ExpertTile&);
  /// The compute lane has written x, and in a backward shares, of what was away.
  void send_back(int i, const ExpertTile&);
  /// What has come back, in its places at home; the compute lane waits for it.
  ExpertRows returned(int i, const ExpertTile&);
  /// All has come home: the slots are given back.
  void finish();

  /// The pipeline: at each step the next tile leaves, one is computed, the one before is taken in.
  template <class Leave, class Compute, class TakeIn>
  void run(const std::vector<ExpertTile>& tiles, Leave leave, Compute compute, TakeIn take_in) {
    const int n = static_cast<int>(tiles.size());
    const auto tile = [&](int i) -> const ExpertTile& { return tiles[static_cast<std::size_t>(i)]; };
    leave(0, tile(0));
    for (int i = 0; i < n; ++i) {
      if (i + 1 < n) leave(i + 1, tile(i + 1));
      compute(i, tile(i));
      if (i > 0) take_in(i - 1, tile(i - 1));
    }
    take_in(n - 1, tile(n - 1));
    finish();
  }

 private:
  static constexpr int kHome = 3, kAway = 2;
  ExpertRows take(Lane, std::int64_t rows, bool with_dy);
  ExpertRows away_slot(int i) const;

  ExpertGroup& group_;
  Queue& queue_;
  std::int64_t C_, K_;
  DType type_;
  bool backward_;
  std::array<ExpertRows, kHome> home_;
  std::array<Tensor, kHome> place_;
  std::array<Tensor, kAway> dy_;  // at home, which needs it only until it has left
  std::array<ExpertRows, kAway> away_;
  std::array<Mark, kAway> arrived_;
  std::array<Mark, kHome> back_;
  std::vector<Tensor> taken_;
};

}  // namespace annulus
