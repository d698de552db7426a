// What a rank's memory will be, counted before anything is allocated by running the same code on the dry
// backend.
#pragma once
#include <functional>
#include <string>
#include "train/engine.h"

namespace annulus {

/// One micro-step and one update (unless the weights are frozen) and one evaluation (when `with_eval`) in a
/// recording arena. `sizes`: whose scratch sizes to count.
Layout plan_memory(const EngineSpec&, const Node&, Place, const Ops* sizes, bool with_eval);

/// What a rank may take: of the device for its arena, of the host as pinned memory.
struct MemoryBudget {
  std::int64_t device = 0, host = 0;
};
/// On a device with so much free: what memory.limit leaves, less a reserve.
std::int64_t device_budget(const Backend&, double limit_gb);

/// The fewest layers whose saved tensors must go to the host for this rank to fit, as far as memory.offload
/// allows; -1 when it does not fit.
std::int64_t fewest_offloaded(const EngineSpec&, const Node&, const Ops* sizes, bool with_eval,
                              const MemoryBudget&);
/// Pinned bytes of the optimizer's state; 0 without optimizer.offload.
std::int64_t offloaded_state_bytes(const EngineSpec&, const Node&);
/// Pinned bytes of one layer's saved tensors.
std::int64_t saved_bytes(const EngineSpec&);

/// Settles, for a device, what memory.offload leaves open: with auto as few layers' saved tensors go to the
/// host as the device needs (memory.limit, or what it has free), then the lean backward; the host's memory is
/// respected. Says what it chose; environment error, with figures, when nothing fits. The same on all ranks.
/// `sharing`: ranks that share this host's memory; 0: those of the node.
void fit_memory(EngineSpec&, Comm& world, const Node&, Backend&, bool with_eval,
                const std::function<void(const std::string&)>& say, int sharing = 0);

/// The map of a full row of one document, as this rank would hold it: no tokens, for backends without memory.
LocalRow plain_row(const EngineSpec&);

/// "weights 1.20 GB, grads 0.60 GB, ...": the regions at the peak.
std::string describe(const Layout&);

/// What the processes of this host may still take: the smaller of the control group's rest and MemAvailable.
std::int64_t host_bytes_free();

/// Environment error when the ranks of a host cannot all have what they need; it gives the figures and the
/// lever that would make the job fit. Collective.
void check_host_memory(Comm& world, const EngineSpec&, const Node&, const Ops* sizes, bool with_eval,
                       std::int64_t bytes, std::int64_t free);

}  // namespace annulus
