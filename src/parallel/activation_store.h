// What the backward needs of the forward, layer by layer: kept on the device, or sent to pinned host memory
// behind the computation and brought back one layer ahead of its use.
#pragma once
#include <array>
#include <cstdint>
#include <vector>
#include "core/arena.h"
#include "ops/backend.h"

namespace annulus {

/// The tensors of a layer that may be saved.
enum class Saved : std::uint8_t { x, a, lse, x1, gu, qkv, experts };
inline constexpr int kSavedSlots = 7;

/// Copies out run on Lane::out, back on Lane::in; all else is used on Lane::compute. Host buffers are made
/// when a slot is first saved and kept to the end.
class ActivationStore {
 public:
  /// The first `host_layers` layers go to the host: they come back last, so their way is the longest hidden.
  ActivationStore(Backend&, Arena&, std::int64_t layers, std::int64_t host_layers);

  /// Takes over a temporary of the arena. The compute lane has written it, and may read it until settle().
  void save(std::int64_t layer, Saved, const Tensor&);
  /// The compute lane has passed the layer's forward: what is in host memory need not stay here.
  void settle(std::int64_t layer);

  /// Starts bringing back whatever of the layer is not here.
  void fetch(std::int64_t layer);
  /// A saved tensor; the compute lane waits for it. Fetches it when nobody has.
  Tensor get(std::int64_t layer, Saved);
  /// The compute lane does without it for a while: a copy that the host also holds is given back.
  void park(std::int64_t layer, Saved);
  /// The compute lane has passed its last use; its contents may have been overwritten.
  void release(std::int64_t layer, Saved);

  /// After an exception in the middle of a row, before the arena's own abandon().
  void abandon();
  std::int64_t host_bytes() const { return host_.peak_bytes(); }

 private:
  struct Entry {
    Tensor device, host;
    bool saved = false;  // between save() and release()
    bool here = false;   // `device` is alive
    Mark out, in;        // ends of the last copies
  };
  Entry& entry(std::int64_t layer, Saved slot);
  void bring_back(Entry&);
  void give(Entry&, Lane last);

  Queue& queue_;
  Arena& arena_;
  Arena host_;
  std::int64_t host_layers_;
  std::vector<std::array<Entry, kSavedSlots>> entries_;
};

}  // namespace annulus
