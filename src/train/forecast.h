// What a step of a job will take, worked out without the job: the same code on the dry backend, twice. The
// first pass records memory, the second one walks the packed arena with a clock per lane.
#pragma once
#include "ops/dry/dry_queue.h"
#include "train/engine.h"

namespace annulus {

struct Forecast {
  Layout layout;
  std::int64_t pinned_bytes = 0;
  std::int64_t micro_steps = 1;  // a step's, of this rank
  DryTimes micro, update;        // of one of them; of the update
  Traffic traffic;               // sent in a step
  double flops = 0;              // of the model, a step, all ranks together
  std::int64_t tokens = 0;       // of a step, all ranks together

  double seconds() const { return static_cast<double>(micro_steps) * micro.seconds + update.seconds; }
  /// Of a whole step.
  double busy(Lane) const;
  double waited_for(Lane) const;  // DryTimes::waited_for
  std::map<std::string, Spent> kinds() const;
};

/// A row of documents of one length (0: one document), the map alone.
LocalRow row_of_documents(const EngineSpec&, std::int64_t document);

/// `rates`: null: memory, flops and traffic alone. `sizes`: whose attention scratch counts; null: that of the
/// device of the rates. The spec is as fit_memory left it.
Forecast forecast(const EngineSpec&, const Node&, Place, const Ops* sizes, const Rates* rates, const Links&,
                  std::int64_t document);

}  // namespace annulus
